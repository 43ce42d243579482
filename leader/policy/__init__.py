"""The leader's decisions as pure functions of plain data.

Begin with `scaling` (what splits and merges) and `rebalancing` (what moves). `placement` chooses brokers for segments,
`cut_points` and `even_cuts` say where to cut, `successors` puts both into one transition, `brokers_wanted` is for
autoscalers.
"""
