"""The bounds of the memory and time that requests take: arriving bodies, messages not stored yet, pages, streams.

`arrivals` bounds bodies that have come only in part, `front_store` messages that are not stored yet, and `read_budget`
the pages of all reads together. `reads` ends reads at a drain and counts subscriptions. `upload_streams` shares the
store's connections between payloads. `turns` shares the event loop: long work goes on in `steps`, in the order that
`fair_line` decides. Limits of connections are in `mq/process/connections`.
"""
