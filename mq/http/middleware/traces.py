"""Begins a span for each publish and each read that is traced, and ends it with the answer."""

import re
from collections.abc import Awaitable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filer import request_ids
from filer.tracing import NO_SPAN, Carrier, Span
from mq.peers.calls import PREFIX, READ_TAIL
from mq.tracing.tracer import Tracer

# Names that no topic may have would be names of spans, and whoever likes could make any number of them.
_TOPIC = r"/topics/([A-Za-z0-9._-]{1,200})/"
_MESSAGES = re.compile(rf"/v1{_TOPIC}(?:messages(?:/[^/]+(?:/payload)?)?|segments/[0-9]{{1,18}}/messages)\Z")
_SUBSCRIBE = re.compile(rf"/v1{_TOPIC}subscribe\Z")
_TAIL = re.compile(rf"{PREFIX}{_TOPIC}segments/[0-9]{{1,18}}/{READ_TAIL.name}\Z")
_CARRIED = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


class Traces:
    """Around the whole app, if the broker traces.

    A stream has a span for its beginning only: what it gives later belongs to no request, and has no bound. Calls of
    other brokers that carry messages of several requests name their traces in the body, not here.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection. Requests that are not traced have nothing around them."""
        if scope["type"] != "http" or (not _is_in_trace(scope["headers"]) and self._tracer.passes_over()):
            return self._app(scope, receive, send)
        span = self._begin(scope)
        if not span.is_recording:
            return self._app(scope, receive, send)
        return self._traced(span, scope, receive, send)

    async def _traced(self, span: Span, scope: Scope, receive: Receive, send: Send) -> None:
        if (request_id := request_ids.current()) is not None:
            span.note(request_id=request_id)
        is_stream = _SUBSCRIBE.match(scope["path"]) is not None
        with span:
            await self._app(scope, receive, _observed(send, span, ends_with_head=is_stream))

    def _begin(self, scope: Scope) -> Span:
        step, match = _step_of(scope["method"], scope["path"])
        if match is None:
            return NO_SPAN
        carrier = _carrier(scope["headers"])
        if step == READ_TAIL.name:
            return self._tracer.resume(step, match[1], [carrier])
        return self._tracer.begin(step, match[1], carrier)


def _step_of(method: str, path: str) -> tuple[str, re.Match[str] | None]:
    """What the request asks for, and its topic; no match for what is not traced."""
    if method == "POST":
        # To a single message nobody posts.
        return "publish", _MESSAGES.match(path) if path.endswith("/messages") else None
    if method != "GET":
        return "", None
    if (match := _MESSAGES.match(path)) is not None:
        return "receive", match
    if (match := _SUBSCRIBE.match(path)) is not None:
        return "subscribe", match
    return READ_TAIL.name, _TAIL.match(path)


def _is_in_trace(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    for name, _ in headers:  # noqa: SIM110 - `any` takes three times as long, and this runs for each request
        if name == b"traceparent":
            return True
    return False


def _carrier(headers: Iterable[tuple[bytes, bytes]]) -> Carrier:
    return {_CARRIED[name]: value.decode("latin-1") for name, value in headers if name in _CARRIED}


def _observed(send: Send, span: Span, *, ends_with_head: bool) -> Send:
    """Sends an answer, and notes its status."""

    async def observed(message: Message) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            span.note(status=status)
            if status >= 500:
                span.fail(str(status))
            if ends_with_head:
                span.end()
        await send(message)

    return observed
