"""Programs that use OpenTelemetry: the brokers go on with their traces."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from braidmq import AsyncClient, Client
from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.traces.recorded_traces import RecordedTraces, parent_of, trace_id_of

TOPIC = "birds"
program = TracerProvider(shutdown_on_exit=False).get_tracer("a program")


@pytest.fixture
def recorded() -> RecordedTraces:
    return RecordedTraces()


@pytest.fixture
async def broker(recorded: RecordedTraces) -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore(), tracer=recorded.tracer_of("a")) as running:
        yield running


def parents(recorded: RecordedTraces, step: str) -> list[tuple[str, str]]:
    """The trace and the parent of each span of that step, in order."""
    return [(trace_id_of(span), parent_of(span)) for span in recorded.spans(step)]


def ids_of(span: trace.Span) -> tuple[str, str]:
    context = span.get_span_context()
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)


async def test_publishes_and_reads_belong_to_the_span_around_them(broker: HttpBroker, recorded: RecordedTraces) -> None:
    async with AsyncClient(broker.url) as client:
        await client.create_topic(TOPIC)
        with program.start_as_current_span("order") as span:
            await client.publish(TOPIC, b"heron", key="k")
        await client.publish(TOPIC, b"stork")
        with program.start_as_current_span("report") as reading:
            assert [message.value async for message in client.browse(TOPIC)] == [b"heron", b"stork"]
    first, second = parents(recorded, "publish")
    assert first == ids_of(span)
    assert second[0] != first[0] and second[1] == "none"
    assert set(parents(recorded, "receive")) == {ids_of(reading)}


async def test_a_request_of_a_producer_belongs_to_its_first_message_that_is_in_a_trace(
    broker: HttpBroker, recorded: RecordedTraces
) -> None:
    spans: list[trace.Span] = []
    async with AsyncClient(broker.url) as client:
        await client.create_topic(TOPIC, segments=1)
        async with client.producer(TOPIC, linger_seconds=60) as producer:
            with program.start_as_current_span("starts the producer's task"):
                await producer.send(b"0", key="k")
            await producer.flush()
            await producer.send(b"1", key="k")
            await producer.flush()
            await producer.send(b"2", key="k")
            for n in range(2):
                with program.start_as_current_span(f"order {n}") as span:
                    spans.append(span)
                    await producer.send(b"3", key="k")
            await producer.flush()
    started, alone, batch = parents(recorded, "publish")
    assert batch == ids_of(spans[0])
    # Whoever sent first has nothing to do with what others send without a trace.
    assert alone[1] == "none" and alone[0] != started[0]


async def test_the_blocking_client_passes_the_trace_to_its_own_thread(
    broker: HttpBroker, recorded: RecordedTraces
) -> None:
    def run() -> trace.Span:
        with Client(broker.url) as client, client.producer(TOPIC) as producer:
            with program.start_as_current_span("order") as span:
                client.publish(TOPIC, b"heron", key="k")
                producer.send(b"stork", key="k")
            return span

    async with AsyncClient(broker.url) as client:
        await client.create_topic(TOPIC)
    span = await asyncio.to_thread(run)
    assert parents(recorded, "publish") == [ids_of(span)] * 2


def test_a_program_without_opentelemetry_imports_none_of_it() -> None:
    code = (
        "import sys, asyncio\n"
        "from braidmq import Client, NoConnection\n"
        "with Client('http://127.0.0.1:9') as client:\n"
        "    try:\n        client.publish('t', b'x')\n    except NoConnection:\n        pass\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
