"""How a broker carries transitions out: for itself, for users, and for the whole cluster while it leads.

Begin with `transition_executor`. A transition goes from there to `leader.transitions` (the record in topic.json), to
`segment_sealer` (which seals each segment), and in the end to `state_broadcast` (the other brokers learn of the new
state). `segment_placement` chooses brokers for new segments. `split_merge_requests` checks users' requests.
"""
