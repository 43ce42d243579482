"""Which brokers are alive and which one leads.

Begin with `coordinator`: the protocol, and the form for a broker without a cluster. `zookeeper_coordinator` is the form
for a cluster: `zookeeper_rounds` is its loop, `zookeeper_round` the calls of one round, `zookeeper_session` the
connection, `cluster_view` the result. `missing_brokers` finds brokers with an ended session, `refusing_brokers` those
that are gone although their session goes on.
"""
