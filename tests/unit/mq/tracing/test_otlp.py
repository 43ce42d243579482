"""A collector that is away or slow: it costs spans, and nothing else."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mq.base.settings import BrokerSettings
from mq.base.version import VERSION
from mq.tracing import otlp
from mq.tracing.otlp import ToldExporter, ended_in_time, provided, resource
from tests.support.traces.recorded_traces import TRACEPARENT

SPANS: Sequence[ReadableSpan] = (ReadableSpan("publish birds"), ReadableSpan("queue birds"))


class Collector(SpanExporter):
    """Takes spans, or does not; `gate` holds it up."""

    def __init__(self) -> None:
        self.taken: list[ReadableSpan] = []
        self.outcome: SpanExportResult | Exception = SpanExportResult.SUCCESS
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.gate.wait(30)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is SpanExportResult.SUCCESS:
            self.taken += spans
        return self.outcome

    def shutdown(self) -> None:
        self.gate.set()


@pytest.mark.parametrize("outcome", [SpanExportResult.FAILURE, ConnectionError("refused")], ids=["fails", "raises"])
def test_the_log_tells_once_that_spans_do_not_arrive_and_once_that_they_do(
    outcome: SpanExportResult | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector = Collector()
    told = ToldExporter(collector, "http://c:4318/v1/traces", lambda: "refused")
    assert told.export(SPANS) is SpanExportResult.SUCCESS
    for _ in range(2):
        collector.outcome = outcome
        for _ in range(3):
            assert told.export(SPANS) is SpanExportResult.FAILURE
        collector.outcome = SpanExportResult.SUCCESS
        for _ in range(2):
            assert told.export(SPANS) is SpanExportResult.SUCCESS
    levels = [(record.levelname, "http://c:4318/v1/traces" in record.getMessage()) for record in caplog.records]
    assert levels == [("WARNING", True), ("INFO", True)] * 2
    assert "refused" in caplog.messages[0] and "6" in caplog.messages[1]


async def test_a_slow_collector_holds_up_nobody_and_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    collector = Collector()
    collector.gate.clear()
    tracer = provided(collector, Resource({}))
    for _ in range(10):
        tracer.begin("publish", "birds", {"traceparent": TRACEPARENT}).end()
    assert await asyncio.to_thread(collector.asked.wait, 20)
    began = time.monotonic()
    for _ in range(1000):
        tracer.begin("publish", "birds", {"traceparent": TRACEPARENT}).end()
    assert time.monotonic() - began < 5
    collector.gate.set()
    await tracer.close()
    # The ten under way, and the twenty newest.
    assert len(collector.taken) == 30


async def test_the_last_spans_go_out_at_the_end() -> None:
    collector = Collector()
    tracer = provided(collector, Resource({}))
    tracer.begin("publish", "birds", {"traceparent": TRACEPARENT}).end()
    await tracer.close()
    assert [span.name for span in collector.taken] == ["publish birds"]


async def test_a_collector_that_hangs_holds_up_the_end_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "CLOSE_SECONDS", 0.05)
    collector = Collector()
    collector.gate.clear()
    tracer = provided(collector, Resource({}))
    tracer.begin("publish", "birds", {"traceparent": TRACEPARENT}).end()
    began = time.monotonic()
    await tracer.close()
    assert time.monotonic() - began < 5
    # It was told to stop trying.
    assert collector.gate.is_set()


async def test_what_does_not_end_is_not_waited_for() -> None:
    gate = threading.Event()
    assert not await ended_in_time(gate.wait, 0.01)
    gate.set()
    assert await ended_in_time(lambda: None, 20)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"service.name": "braidmq", "service.instance.id": "b1", "service.namespace": "aviary"}),
        ({"OTEL_SERVICE_NAME": "queue"}, {"service.name": "queue"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=q2,service.instance.id=pod-7,zone=a"},
            {"service.name": "q2", "service.instance.id": "pod-7", "zone": "a"},
        ),
    ],
    ids=["by itself", "by its name", "by attributes"],
)
def test_how_a_broker_is_called(
    environment: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    described = resource(BrokerSettings(broker="b1", cluster="aviary")).attributes
    assert {name: described[name] for name in expected} == expected
    assert described["service.version"] == VERSION
