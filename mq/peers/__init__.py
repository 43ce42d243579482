"""Calls between brokers over HTTP: each call is described once, and both sides use the description.

Begin with `calls`: one `Call` for each request, with its path, parameters and the form of its answer. `peers` is the
caller's side; the serving side is `mq/http/internal`, which dispatches by the same descriptions. `part_batch` and
`traffic_report` pack the larger bodies. `broker_sights` looks at other brokers, and `refusal_teller` reports those that
refuse connections to the leader. `older_brokers` is all that a rolling upgrade needs, and says when it may go.
"""
