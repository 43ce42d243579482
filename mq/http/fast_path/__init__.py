"""Publishes of one message that are served where the connection reads them, without ASGI: most publishes are such.

Begin with `fast_publisher`: it makes every check that `endpoints/publish.py` makes, by the same functions, and appends
the message. `head` says which requests it understands. Whatever else comes, and whatever is refused, goes to the ASGI
app, which answers it as ever (docs/decisions/0030-single-publishes-go-past-asgi.md).
"""
