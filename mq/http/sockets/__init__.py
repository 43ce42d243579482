"""`GET /v1/topics/{topic}/socket`: publishing and consuming, both ways at once, on one connection (docs/websocket.md).

Begin with `session`, which serves one socket: it takes messages from its `wire` (the WebSocket itself is
`mq/process/connections/web_socket.py`), lets `requests` parse them, and sends `answers`. `publishes` begins publishes
as they come, any number of them, and answers them together. Delivery goes by the credit that a client gives:
`topic_delivery`, `queue_delivery` and `member_delivery` are the kinds of `subscription`.
"""
