"""Begins a span for each publish and each read that is traced, and ends it with the answer."""

import re
from collections.abc import Awaitable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filer import request_ids
from filer.tracing import NO_SPAN, Carrier, Span
from mq.http.routes import match_of
from mq.peers.calls import PREFIX, READ_TAIL
from mq.tracing.tracer import Tracer

# Names that no topic may have would become names of spans, and a client could make any number of them.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
_TAIL = re.compile(rf"{PREFIX}/topics/([A-Za-z0-9._-]{{1,200}})/segments/[0-9]{{1,18}}/{READ_TAIL.name}\Z")
_CARRIED = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


class Traces:
    """Around the whole app, if the broker traces.

    A stream has a span for its beginning only: its later data belongs to no request, and has no bound. Calls of other
    brokers that carry messages of several requests name their traces in the body, not here.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection. Requests that are not traced have no wrapper."""
        if scope["type"] != "http" or (not _is_in_trace(scope["headers"]) and self._tracer.passes_over()):
            return self._app(scope, receive, send)
        span = self._begin(scope)
        if not span.is_recording:
            return self._app(scope, receive, send)
        return self._traced(span, scope, receive, send)

    async def _traced(self, span: Span, scope: Scope, receive: Receive, send: Send) -> None:
        if (request_id := request_ids.current()) is not None:
            span.note(request_id=request_id)
        is_stream = match_of(scope).is_endless
        with span:
            await self._app(scope, receive, _observed(send, span, ends_with_head=is_stream))

    def _begin(self, scope: Scope) -> Span:
        match = match_of(scope)
        if match.route is not None and match.route.step is not None and _TOPIC.match(match.need.topic):
            return self._tracer.begin(match.route.step, match.need.topic, _carrier(scope["headers"]))
        if scope["method"] == "GET" and (found := _TAIL.match(scope["path"])) is not None:
            return self._tracer.resume(READ_TAIL.name, found[1], [_carrier(scope["headers"])])
        return NO_SPAN


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
