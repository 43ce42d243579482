"""Subscriptions: a page that is rendered for one is written to all that stand at the same place of their topic.

Begin with `stream_pages`: each page is read and rendered once, and shared for as long as a stream uses it. Streams that
have read all messages are written to together, by `live_streams`. `stream_page` renders. By `mq/http/chunks.py` an
answer is written without a copy for each client.
"""
