"""Spans that brokers in this process have ended, as they would go to a collector."""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

from mq.tracing.otel_tracer import OtelTracer

# What a client sends: a trace and a span of its own, sampled.
TRACE_ID, CLIENT_SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{CLIENT_SPAN_ID}-01"


class RecordedTraces:
    """A tracer for each broker, by name, and all their spans. `service.name` of a span is the broker's name."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self._sampler = sampler or ParentBased(ALWAYS_ON)
        self._begun = _Begun()

    def tracer_of(self, broker: str) -> OtelTracer:
        provider = TracerProvider(
            sampler=self._sampler, resource=Resource({"service.name": broker}), shutdown_on_exit=False
        )
        provider.add_span_processor(self._begun)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))

        async def close() -> None:
            provider.shutdown()

        return OtelTracer(provider, close)

    @property
    def open(self) -> list[str]:
        """The names of spans that have not ended."""
        return sorted(self._begun.open.values())

    def clear(self) -> None:
        self._exporter.clear()

    def spans(self, step: str | None = None) -> list[ReadableSpan]:
        """All ended spans of that step, or of all."""
        found = self._exporter.get_finished_spans()
        return [span for span in found if step is None or step_of(span) == step]

    def tree(self, trace_id: str = TRACE_ID) -> list[str]:
        """The spans of a trace as `parent > step@broker`, sorted: parents by their step and broker."""
        spans = [span for span in self.spans() if trace_id_of(span) == trace_id]
        names = {span_id_of(span): f"{step_of(span)}@{broker_of(span)}" for span in spans}
        names[CLIENT_SPAN_ID] = "client"
        return sorted(f"{names.get(parent_of(span), parent_of(span))} > {names[span_id_of(span)]}" for span in spans)


class _Begun(SpanProcessor):
    def __init__(self) -> None:
        self.open: dict[int, str] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.open[_context(span).span_id] = span.name

    def on_end(self, span: ReadableSpan) -> None:
        del self.open[_context(span).span_id]


def _context(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def step_of(span: ReadableSpan) -> str:
    return span.name.partition(" ")[0]


def broker_of(span: ReadableSpan) -> str:
    return str(span.resource.attributes["service.name"])


def trace_id_of(span: ReadableSpan) -> str:
    return format_trace_id(_context(span).trace_id)


def span_id_of(span: ReadableSpan) -> str:
    return format_span_id(_context(span).span_id)


def parent_of(span: ReadableSpan) -> str:
    return "none" if span.parent is None else format_span_id(span.parent.span_id)


def links_of(span: ReadableSpan) -> Sequence[str]:
    """The ids of the spans that it points to."""
    return [format_span_id(link.context.span_id) for link in span.links]
