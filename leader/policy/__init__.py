"""The leader's decisions as pure functions of plain data.

Begin with `scaling` (which segments split and merge) and `rebalancing` (which segments move). `placement` chooses
brokers for segments, `cut_points` and `even_cuts` choose where to cut, `successors` puts both into one transition,
`brokers_wanted` is for autoscalers.
"""
