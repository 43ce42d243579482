"""The leader: decides which broker owns which segment, and when segments split, merge and move.

`leader_loop` fails over, drains and rebalances; `scaling_controller` splits and merges. Both go by `policy` (pure
decisions), which goes by `traffic` (the reports of owners) and `membership` (the live brokers). `refusal_watch` looks
at brokers that refuse connections. A decision of the loops becomes a transition: `transitions` has the pure steps,
`transition_runner` carries one out.
"""
