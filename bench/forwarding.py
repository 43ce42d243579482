"""What it costs to publish through a broker that does not own the segment and forwards to the one that does."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.load import ARROW, RAW, LoadResult, run_wrk, write_batch
from bench.local_cluster import local_cluster
from bench.server_process import scratch_folder

BATCH_MESSAGES, BATCH_MESSAGE_BYTES, SINGLE_BYTES = 1_000, 1024, 100


@dataclass(frozen=True, slots=True)
class Way:
    """One kind of load: what it is, the messages of a request, its content type, on how many connections."""

    what: str
    messages: int
    content_type: str
    connections: int


WAYS = (
    Way("single, 1 connection", 1, RAW, 1),
    Way("singles, 64 connections", 1, RAW, 64),
    Way("Arrow 1,000 x 1 KiB, 1 connection", BATCH_MESSAGES, ARROW, 1),
    Way("Arrow 1,000 x 1 KiB, 4 connections", BATCH_MESSAGES, ARROW, 4),
)


@dataclass(frozen=True, slots=True)
class Side:
    """Medians of all rounds: throughput, and a round's median latency."""

    messages_per_second: float
    p50_ms: float


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The same load sent to the owner, and to another broker."""

    way: Way
    direct: Side
    forwarded: Side


def measure_forwarding(*, rounds: int, seconds: float, tell: Callable[[str], None]) -> list[Forwarded]:
    """Both sides in turn, to the same segment of the same cluster."""
    with local_cluster() as cluster, scratch_folder() as folder:
        cluster.create_topic("forward")
        owner = cluster.segments("forward")[0].owner
        other = next(name for name in cluster.brokers if name != owner)
        results: dict[tuple[Way, bool], list[LoadResult]] = {(way, side): [] for way in WAYS for side in (True, False)}
        for number in range(rounds + 1):
            for (way, direct), measured in results.items():
                tell(f"{'direct' if direct else 'forwarded'}: {way.what}, round {number} of {rounds}")
                url = f"{cluster.brokers[owner if direct else other].url}/v1/topics/forward/messages"
                body = _body(folder, way)
                result = run_wrk(url, body, way.content_type, connections=way.connections, seconds=seconds)
                if number:
                    measured.append(result)
    return [Forwarded(way, _side(way, results[way, True]), _side(way, results[way, False])) for way in WAYS]


def _body(folder: Path, way: Way) -> Path:
    path = folder / way.content_type.rpartition("/")[2]
    if not path.exists():
        if way.content_type == ARROW:
            write_batch(path, BATCH_MESSAGES, BATCH_MESSAGE_BYTES)
        else:
            path.write_bytes(os.urandom(SINGLE_BYTES))
    return path


def _side(way: Way, measured: list[LoadResult]) -> Side:
    return Side(
        statistics.median(way.messages * each.requests / each.seconds for each in measured),
        statistics.median(each.p50_ms for each in measured),
    )
