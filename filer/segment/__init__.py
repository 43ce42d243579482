"""One segment's log on the store: which files count, what they hold, and what is known of its producers.

Begin with `live_files` (the rule by which readers choose files), then `segment_index` and `segment_log` (recovery,
puts, seals). With `producer_windows`, `deduplication` and `inheritance` a repeated publish stores nothing twice.
`take_over` seals in a lost owner's stead, `segment_reader` reads back, and `writer/` is the owner's side.
"""
