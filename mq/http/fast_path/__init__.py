"""Publishes of one message, as most are. They are served where the connection reads them, without ASGI.

Begin with `fast_publisher`: it makes every check that `endpoints/publish.py` makes, by the same functions, and appends
the message. `head` decides which requests it understands. All other requests, and those that are refused, go to the
ASGI app, which answers them as ever (docs/decisions/0030-single-publishes-go-past-asgi.md).
"""
