"""`GET /v1/topics/{topic}/socket`: publishing and consuming, both ways at once, on one connection (docs/websocket.md).

Begin with `session`, which serves one socket: it takes messages from its `wire` (the WebSocket itself is
`mq/process/connections/web_socket.py`), has `requests` parse them, and sends `answers`. `publishes` begins what comes
to be published, as many as come, and answers them together. What is delivered goes by the credit that a client gives:
`topic_delivery`, `queue_delivery` and `member_delivery` are the kinds of `subscription`.
"""
