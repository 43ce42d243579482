"""Subscriptions: what is rendered for one is written to all that stand at the same place of their topic.

Begin with `stream_pages`: each page is read and rendered once, and shared for as long as somebody has use for it.
Streams that have read all there is are written to together, by `live_streams`. `stream_page` renders.
`mq/http/chunks.py` is how an answer is written to without a copy for each client.
"""
