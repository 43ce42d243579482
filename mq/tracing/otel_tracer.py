"""Spans by OpenTelemetry's SDK."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from filer.tracing import NO_SPAN, Carrier, EnteredSpan, Fact, Kind, LeftOut, Span, together
from mq.base.version import VERSION
from mq.tracing.attributes import of_facts, of_step
from mq.tracing.chosen_ids import ChosenIds
from mq.tracing.tracer import MOST_TOGETHER, Tracer

MOST_SPANS = 64
"""The most spans of a request at one broker; a page of a topic with more segments would make one for each."""
MOST_DETAIL_CHARACTERS = 500
_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT, "server": SpanKind.SERVER}
_NO_PARENT = Context()
_propagator = TraceContextTextMapPropagator()


class OtelTracer(Tracer):
    """Traces the requests that the provider's sampler chooses. `on_close` sends the remaining spans.

    With `chosen`, which has the provider's ids and its sampler's ratio, it decides sooner which requests of untraced
    clients are chosen. Requests that are passed over cost next to nothing then.
    """

    is_on = True

    def __init__(
        self, provider: TracerProvider, on_close: Callable[[], Awaitable[None]], chosen: ChosenIds | None = None
    ) -> None:
        self._tracer = provider.get_tracer("braidmq", VERSION)
        self._on_close = on_close
        self._chosen = chosen

    def passes_over(self) -> bool:
        """As `Tracer.passes_over`."""
        return self._chosen is not None and self._chosen.passes_over()

    def would_pass_over(self) -> bool:
        """As `Tracer.would_pass_over`."""
        return self._chosen is not None and not self._chosen.chooses_next

    def begin(self, step: str, topic: str, carrier: Carrier) -> Span:
        """As `Tracer.begin`."""
        parent = _propagator.extract(carrier, _NO_PARENT) if carrier else _NO_PARENT
        # `passes_over` was not called yet for a client that seemed to trace.
        if "traceparent" in carrier and not parent and self.passes_over():
            return NO_SPAN
        return self._begin(step, topic, parent)

    def resume(self, step: str, topic: str, carriers: Sequence[Carrier]) -> Span:
        """As `Tracer.resume`."""
        return together(self._resume(step, topic, carrier) for carrier in carriers[:MOST_TOGETHER])

    async def close(self) -> None:
        """As `Tracer.close`."""
        await self._on_close()

    def _resume(self, step: str, topic: str, carrier: Carrier) -> Span:
        parent = _propagator.extract(carrier, _NO_PARENT)
        sampled = trace.get_current_span(parent).get_span_context().trace_flags.sampled
        return self._begin(step, topic, parent) if sampled else NO_SPAN

    def _begin(self, step: str, topic: str, parent: Context) -> Span:
        attributes = of_step(step, topic)
        span = self._tracer.start_span(f"{step} {topic}", parent, SpanKind.SERVER, attributes)
        return OtelSpan(span, _Request(self._tracer, topic), parent) if span.is_recording() else NO_SPAN


class _Request:
    """What the spans of one request at this broker share."""

    __slots__ = ("left_out", "spans_left", "topic", "tracer")

    def __init__(self, tracer: trace.Tracer, topic: str) -> None:
        self.tracer, self.topic = tracer, topic
        self.spans_left, self.left_out = MOST_SPANS - 1, 0


class OtelSpan(EnteredSpan):
    """A span that is sent to the collector when it has ended. It belongs to the event loop's thread."""

    __slots__ = ("_ended", "_parent", "_request", "_span")

    is_recording = True

    def __init__(self, span: trace.Span, request: _Request, parent: Context) -> None:
        self._span, self._request, self._parent = span, request, parent
        self._ended = False

    @property
    def trace_id(self) -> str | None:
        """As `Span.trace_id`."""
        return None if self._ended else trace.format_trace_id(self._span.get_span_context().trace_id)

    def child(self, step: str, *, kind: Kind = "internal") -> Span:
        """As `Span.child`."""
        if self._ended:
            return NO_SPAN
        return self._start(step, trace.set_span_in_context(self._span, _NO_PARENT), kind)

    def follow(self, step: str, *, kind: Kind = "internal", links: Sequence[Span] = ()) -> Span:
        """As `Span.follow`."""
        return self._start(step, self._parent, kind, links)

    def _start(self, step: str, parent: Context, kind: Kind, links: Sequence[Span] = ()) -> Span:
        request = self._request
        if request.spans_left == 0:
            request.left_out += 1
            return LeftOut()
        request.spans_left -= 1
        linked = [trace.Link(each._span.get_span_context()) for each in links if isinstance(each, OtelSpan)]
        attributes = of_step(step, request.topic)
        span = request.tracer.start_span(f"{step} {request.topic}", parent, _KINDS[kind], attributes, linked)
        return OtelSpan(span, request, parent)

    def note(self, **facts: Fact) -> None:
        """As `Span.note`."""
        if not self._ended:
            self._span.set_attributes(of_facts(facts))

    def event(self, name: str, error: BaseException | None = None) -> None:
        """As `Span.event`."""
        if not self._ended:
            self._span.add_event(
                name, None if error is None else {"error.type": _kind_of(error), "error": _text(error)}
            )

    def link(self, other: Span) -> None:
        """As `Span.link`."""
        if not self._ended and isinstance(other, OtelSpan):
            self._span.add_link(other._span.get_span_context())

    def fail(self, kind: str, detail: str = "") -> None:
        """As `Span.fail`."""
        if not self._ended:
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, detail or kind))

    def end(self, error: BaseException | None = None) -> None:
        """As `Span.end`."""
        if self._ended:
            return
        if error is not None:
            self.fail(_kind_of(error), _text(error))
        if self._request.left_out:
            self.note(spans_left_out=self._request.left_out)
        self._ended = True
        self._span.end()

    def end_with(self, outcome: "asyncio.Future[Any]") -> None:
        """As `Span.end_with`."""
        outcome.add_done_callback(self._end_with)

    def _end_with(self, outcome: "asyncio.Future[Any]") -> None:
        self.end(asyncio.CancelledError() if outcome.cancelled() else outcome.exception())

    def each(self) -> Sequence[Span]:
        """As `Span.each`."""
        return (self,)

    def carriers(self) -> Sequence[Carrier]:
        """As `Span.carriers`."""
        if self._ended:
            return ()
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(self._span, _NO_PARENT))
        return (carrier,)


def _kind_of(error: BaseException) -> str:
    return type(error).__name__


def _text(error: BaseException) -> str:
    return str(error)[:MOST_DETAIL_CHARACTERS]
