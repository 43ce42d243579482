"""Sends spans to a collector by OTLP over HTTP, from a thread of its own: no request ever waits for it.

Memory is bounded: OpenTelemetry's batch processor keeps `OTEL_BSP_MAX_QUEUE_SIZE` (2048) waiting spans, and drops the
others.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from filer.event_log import EventLog
from mq.base.settings import BrokerSettings
from mq.base.trace_environment import root_ratio
from mq.base.version import VERSION
from mq.tracing.chosen_ids import ChosenIds
from mq.tracing.otel_tracer import OtelTracer
from mq.tracing.tracer import MOST_TOGETHER

SERVICE_NAME = "braidmq"
CLOSE_SECONDS = 3.0
"""A broker that ends gives the collector so long to take the last spans."""
_LIBRARY = "opentelemetry"

_log = EventLog(__name__)


def otlp_tracer(settings: BrokerSettings, environment: Mapping[str, str]) -> OtelTracer:
    """Return a tracer that sends its spans as the `OTEL_*` variables say."""
    reasons = _Reasons()
    library = logging.getLogger(_LIBRARY)
    # It logs each failed try, and each dropped span. `ToldExporter` logs it once.
    library.propagate = False
    library.handlers = [reasons]
    exporter = OTLPSpanExporter()
    told = ToldExporter(exporter, exporter._endpoint, reasons.last)
    return provided(told, resource(settings), root_ratio(environment))


def provided(exporter: SpanExporter, described: Resource, ratio: float | None = None) -> OtelTracer:
    """Return a tracer that sends batches of spans to that exporter. `ratio` is that of the sampler, if it has one."""
    chosen = None if ratio is None else ChosenIds(ratio)
    provider = TracerProvider(
        resource=described,
        id_generator=chosen,
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_links=MOST_TOGETHER),
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))

    async def close() -> None:
        if not await ended_in_time(provider.shutdown, CLOSE_SECONDS):
            exporter.shutdown()  # it stops trying

    return OtelTracer(provider, close, chosen)


def resource(settings: BrokerSettings) -> Resource:
    """Return the broker's name in its traces, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` set it."""
    own = {
        "service.name": SERVICE_NAME,
        "service.namespace": settings.cluster,
        "service.instance.id": settings.broker,
        "service.version": VERSION,
    }
    given = OTELResourceDetector().detect().attributes
    return Resource.create({name: value for name, value in own.items() if name not in given})


class ToldExporter(SpanExporter):
    """Logs when spans do not arrive any more, and when they do again: once each, whatever comes between.

    `reason` returns the exporter's last complaint. Runs on the thread of the batch processor.
    """

    def __init__(self, inner: SpanExporter, endpoint: str, reason: Callable[[], str]) -> None:
        self._inner, self._endpoint, self._reason = inner, endpoint, reason
        self._lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """As `SpanExporter.export`."""
        try:
            result = self._inner.export(spans)
            why = "" if result is SpanExportResult.SUCCESS else self._reason()
        except Exception as error:
            result, why = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"
        if result is not SpanExportResult.SUCCESS:
            if not self._lost:
                _log.warning("traces_lost", url=self._endpoint, error=why)
            self._lost += len(spans)
        elif self._lost:
            _log.info("traces_recovered", url=self._endpoint, lost_spans=self._lost)
            self._lost = 0
        return result

    def shutdown(self) -> None:
        """As `SpanExporter.shutdown`."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """As `SpanExporter.force_flush`."""
        return self._inner.force_flush(timeout_millis)


class _Reasons(logging.Handler):
    """Keeps the last complaint of the library."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        # That it gave up says less than why it tried again, which is the first word of that complaint.
        if "Transient error" in record.msg and isinstance(record.args, tuple) and record.args:
            self._last = str(record.args[0])
        elif "due to timeout" not in record.msg or not self._last:
            self._last = record.getMessage()

    def last(self) -> str:
        return self._last


async def ended_in_time(end: Callable[[], object], seconds: float) -> bool:
    """Run `end` in a thread, and wait for it no longer than that. Returns whether it has ended."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def run() -> None:
        end()
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(ended.set)

    # Not in a pool: the process would wait for the pool's thread at its end.
    threading.Thread(target=run, name="braidmq-traces-end", daemon=True).start()
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        return False
    return True
