"""Reading a whole topic back: through the broker, and by reference to its files."""

import time
from collections.abc import Callable, Mapping

import pyarrow as pa

from bench.beside.case import KAFKA, NATS, OURS, Case, Figure, Row, Side, Unit, Wanted
from bench.beside.programs import Programs
from bench.beside.publishing import JAVA_WARM_SECONDS, KAFKA_BATCH_BYTES, Measure
from bench.harness.process_use import used_by
from bench.harness.publishing import TOPIC
from bench.harness.reading_back import fill, from_files, through_the_broker
from bench.harness.server_process import BenchFailed, running_server, scratch_folder
from bench.peers.kafka import Kafka, kafka_broker
from bench.peers.nats import Nats, jet_stream
from bench.peers.python_clients import kafka_topics

TOPIC_BYTES = 200 * 1024 * 1024
BATCH_BYTES = 1_000_000


def reading_cases(found: Programs) -> list[Case]:
    """The cases whose names begin with `reading`."""
    wanted = {1024: 1.2, 100: 1.0}
    sizes = [(size_bytes, segments) for size_bytes in wanted for segments in (1, 4)]
    through = [_through(found, *each, (Wanted(wanted[each[0]], KAFKA),)) for each in sizes]
    return [*through, _by_reference(1), _by_reference(4)]


def _through(found: Programs, size_bytes: int, segments: int, wanted: tuple[Wanted, ...]) -> Case:
    name = f"reading-{_size(size_bytes)}-{segments}"
    what = f"reading back {size_bytes:,} B through the broker, {segments} segment{'s' * (segments > 1)}"
    messages = TOPIC_BYTES // size_bytes
    sides = [Side(OURS, _ours(name, size_bytes, segments, lambda topic, _: through_the_broker(topic)))]
    if found.kafka is not None and found.python is not None:
        sides.append(Side(KAFKA, _kafka(name, found, found.kafka, size_bytes, segments, messages)))
    if found.nats is not None and segments == 1:
        sides.append(Side(NATS, _nats(name, found.nats, size_bytes, messages)))
    return Case(name, [Row(name, what, Unit.PER_SECOND, wanted)], sides)


def _by_reference(segments: int) -> Case:
    name = f"reading-files-{segments}"
    what = f"reading back 1,024 B by reference, {segments} segment{'s' * (segments > 1)}"
    measure = _ours(name, 1024, segments, lambda topic, data: from_files(topic, data))
    return Case(name, [Row(name, what, Unit.PER_SECOND)], [Side(OURS, measure)])


def _size(size_bytes: int) -> str:
    return f"{size_bytes // 1024}k" if size_bytes >= 1024 else f"{size_bytes}b"


def _ours(row: str, size_bytes: int, segments: int, read: Callable[..., pa.Table]) -> Measure:
    batch = BATCH_BYTES // size_bytes
    batches = TOPIC_BYTES // size_bytes // batch

    def measure(seconds: float) -> Mapping[str, Figure]:
        with scratch_folder() as folder:
            data = folder / "data"
            serving = ["serve", "--data", str(data), "--port", "0", "--log-level", "error"]
            with running_server("mq.cli.main", serving) as (url, pid):
                topic = f"{url}/v1/topics/{TOPIC}"
                fill(topic, segments=segments, batches=batches, messages=batch, size_bytes=size_bytes)
                _read(lambda: read(topic, data), batch * batches)
                count = 0
                with used_by(pid) as use:
                    began_seconds = time.perf_counter()
                    while (took_seconds := time.perf_counter() - began_seconds) < seconds:
                        count += _read(lambda: read(topic, data), batch * batches)
        return {row: Figure(count / took_seconds, use.processor_seconds / count * 1e6, use.memory_mib)}

    return measure


def _read(read: Callable[[], pa.Table], messages: int) -> int:
    if (count := read().num_rows) != messages:
        raise BenchFailed(f"{messages} messages published, {count} read back")
    return messages


def _kafka(row: str, found: Programs, programs: Kafka, size_bytes: int, partitions: int, messages: int) -> Measure:
    assert found.python is not None
    packages = found.python

    def measure(seconds: float) -> Mapping[str, Figure]:
        with kafka_broker(programs) as broker:
            kafka_topics(packages, broker, "create", TOPIC, partitions=partitions)
            broker.load("fill", TOPIC, size_bytes, 0, messages, KAFKA_BATCH_BYTES)
            counted = broker.load("consume", TOPIC, messages, JAVA_WARM_SECONDS, seconds)
        return {row: Figure(counted.per_second, counted.processor_us, counted.use.memory_mib)}

    return measure


def _nats(row: str, programs: Nats, size_bytes: int, messages: int) -> Measure:
    def measure(seconds: float) -> Mapping[str, Figure]:
        sizes = {"message_bytes": size_bytes, "messages": messages}
        with jet_stream(programs) as server:
            server.bench("pub", "async", "bench", "--create", "--storage", "file", "--maxbytes", "8GB", **sizes)
            server.bench("ordered", **sizes)
            counted = server.bench("ordered", **sizes)
        return {row: Figure(counted.per_second, counted.processor_us, counted.use.memory_mib)}

    return measure
