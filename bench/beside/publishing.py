"""Publishing: batches, and one message a request."""

from collections.abc import Callable, Mapping

import httpx

from bench.beside.case import KAFKA, NATS, OURS, Case, Figure, Row, Side, Unit, Wanted
from bench.beside.programs import Programs
from bench.harness import publishing
from bench.harness.process_use import used_by
from bench.harness.publishing import TOPIC, prepared_body, stored_messages
from bench.harness.server_process import BenchFailed, measured_broker
from bench.harness.wrk import run_wrk
from bench.peers.kafka import Kafka, kafka_broker
from bench.peers.nats import Nats, jet_stream
from bench.peers.python_clients import kafka_topics

WARM_SECONDS = 2.0
JAVA_WARM_SECONDS = 6.0
"""Longer than ours: Java compiles what is called often, in the broker and in its client."""
KAFKA_BATCH_BYTES = 1_000_000
"""As large as our requests of 1,000 messages of 1 KiB: it is faster so than with the default of 16 KiB."""
NATS_BATCH, NATS_FIRST = 500, 20_000

Measure = Callable[[float], Mapping[str, Figure]]


def publishing_cases(found: Programs) -> list[Case]:
    """The cases whose names begin with `arrow` and `single`."""
    return [
        _batches(found, 1_000, 1024, 1, (Wanted(3.0, KAFKA),)),
        _batches(
            found, 1_000, 1024, 4, (Wanted(430_000), Wanted(2.46, KAFKA), Wanted(2.7, of_processor=True),
            Wanted(0.79, KAFKA, of_processor=True)),
        ),
        _batches(found, 10_000, 100, 1, ()),
        _batches(found, 10_000, 100, 4, (Wanted(3_000_000), Wanted(3.9, KAFKA))),
        _singles(
            found, 64, (Wanted(30_000), Wanted(0.62, NATS), Wanted(35, of_processor=True),
            Wanted(1.75, NATS, of_processor=True)),
        ),
        _singles(found, 1, (Wanted(2_500), Wanted(0.81, KAFKA), Wanted(0.29, NATS))),
    ]  # fmt: skip


def _batches(found: Programs, batch: int, size_bytes: int, segments: int, wanted: tuple[Wanted, ...]) -> Case:
    size = f"{size_bytes // 1024}k" if size_bytes >= 1024 else f"{size_bytes}b"
    name = f"arrow-{size}" + (f"-{segments}" if segments > 1 else "")
    what = f"batches of {batch:,} x {size_bytes:,} B, {segments} segment{'s' * (segments > 1)}"
    ours = publishing.Case(name, what, batch, size_bytes, segments, connections=4, target=0.0)
    sides = [Side(OURS, _ours(name, ours))]
    if found.kafka is not None and found.python is not None:
        load = ("produce", size_bytes, KAFKA_BATCH_BYTES)
        sides.append(Side(KAFKA, _kafka(name, found, found.kafka, segments, load)))
    if found.nats is not None and segments == 1:
        how = ("pub", "fast", "bench.keys", "--batch", f"{NATS_BATCH}", "--max-outstanding-acks", "4")
        sides.append(Side(NATS, _nats(name, found.nats, size_bytes, how)))
    return Case(name, [Row(name, what, Unit.PER_SECOND, wanted)], sides)


def _singles(found: Programs, connections: int, wanted: tuple[Wanted, ...]) -> Case:
    name, size_bytes = f"single-{connections}", 1024
    what = f"single messages of 1 KiB, {connections} connection{'s' * (connections > 1)}, each waits for its answer"
    ours = publishing.Case(name, what, None, size_bytes, 1, connections=connections, target=0.0)
    sides = [Side(OURS, _ours(name, ours))]
    if found.kafka is not None and found.python is not None:
        sides.append(Side(KAFKA, _kafka(name, found, found.kafka, 1, ("singles", size_bytes, connections))))
    if found.nats is not None:
        how = ("pub", "sync", "bench.keys", "--clients", f"{connections}")
        sides.append(Side(NATS, _nats(name, found.nats, size_bytes, how)))
    return Case(name, [Row(name, what, Unit.PER_SECOND, wanted)], sides)


def _ours(row: str, case: publishing.Case) -> Measure:
    def measure(seconds: float) -> Mapping[str, Figure]:
        with measured_broker() as (url, pid), prepared_body(case) as (body, content_type):
            topic = f"{url}/v1/topics/{TOPIC}"
            httpx.put(topic, json={"segments": case.segments, "acks": "stored"}).raise_for_status()
            where = f"{topic}/messages"
            run_wrk(where, body, content_type, connections=case.connections, seconds=WARM_SECONDS)
            with used_by(pid) as use:
                result = run_wrk(where, body, content_type, connections=case.connections, seconds=seconds)
            acknowledged, stored = case.messages_per_request * result.requests, stored_messages(topic)
        if stored < acknowledged:
            raise BenchFailed(f"{case.name}: {acknowledged} messages acknowledged, {stored} stored")
        used_us = use.processor_seconds / acknowledged * 1e6
        return {row: Figure(acknowledged / result.seconds, used_us, use.memory_mib)}

    return measure


def _kafka(row: str, found: Programs, programs: Kafka, partitions: int, load: tuple[str, int, int]) -> Measure:
    command, size_bytes, number = load
    assert found.python is not None
    packages = found.python

    def measure(seconds: float) -> Mapping[str, Figure]:
        with kafka_broker(programs) as broker:
            kafka_topics(packages, broker, "create", TOPIC, partitions=partitions)
            counted = broker.load(command, TOPIC, size_bytes, JAVA_WARM_SECONDS, seconds, number)
        return {row: Figure(counted.per_second, counted.processor_us, counted.use.memory_mib)}

    return measure


def _nats(row: str, programs: Nats, size_bytes: int, how: tuple[str, ...]) -> Measure:
    def measure(seconds: float) -> Mapping[str, Figure]:
        with jet_stream(programs) as server:
            created = (*how, "--create", "--storage", "file", "--maxbytes", "8GB")
            counted = server.bench_for(seconds, *created, message_bytes=size_bytes, first=NATS_FIRST)
        return {row: Figure(counted.per_second, counted.processor_us, counted.use.memory_mib)}

    return measure
