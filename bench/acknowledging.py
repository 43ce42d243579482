"""How long a publish waits for its answer where every put takes its time: once stored, and once replicated."""

import itertools
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.load import RAW, LoadResult, run_wrk
from bench.local_cluster import local_cluster
from bench.server_process import scratch_folder

PUT_DELAY_SECONDS = 0.05
SEGMENTS, REPLICAS, MESSAGE_BYTES = 3, 2, 100
# One publisher: its messages find a segment idle or spaced. Eight on three segments: a put is always in flight.
CONNECTIONS = (1, 8)


@dataclass(frozen=True, slots=True)
class Way:
    """What is waited for, and whether a segment's files are spaced as they are on S3 by default."""

    acks: str
    spaced: bool


WAYS = (Way("stored", spaced=False), Way("stored", spaced=True), Way("replicated", spaced=True))


@dataclass(frozen=True, slots=True)
class AckLatency:
    """Medians, over all rounds, of a round's percentiles."""

    way: Way
    connections: int
    p50_ms: float
    p99_ms: float


def measure_acks(*, rounds: int, seconds: float, tell: Callable[[str], None]) -> list[AckLatency]:
    """Publish single messages, each way in turn, round after round; files are spaced or not by cluster."""
    measured: list[AckLatency] = []
    for spaced in (False, True):
        ways = [way for way in WAYS if way.spaced is spaced]
        interval = None if spaced else 0.0
        with local_cluster(put_delay_seconds=PUT_DELAY_SECONDS, flush_interval_seconds=interval) as cluster:
            cluster.create_topic("acks", segments=SEGMENTS, replicas=REPLICAS)
            url = f"{cluster.brokers['broker-1'].url}/v1/topics/acks/messages"
            measured += _measure(url, ways, rounds, seconds, tell)
    return measured


def _measure(url: str, ways: list[Way], rounds: int, seconds: float, tell: Callable[[str], None]) -> list[AckLatency]:
    results: dict[tuple[Way, int], list[LoadResult]] = {each: [] for each in itertools.product(ways, CONNECTIONS)}
    with scratch_folder() as folder:
        body = folder / "body"
        body.write_bytes(os.urandom(MESSAGE_BYTES))
        for number in range(rounds + 1):
            for (way, connections), kept in results.items():
                tell(f"acks={way.acks}, {connections} connections, round {number} of {rounds}")
                result = run_wrk(f"{url}?acks={way.acks}", body, RAW, connections=connections, seconds=seconds)
                if number:
                    kept.append(result)
    return [
        AckLatency(
            way, connections, statistics.median(r.p50_ms for r in kept), statistics.median(r.p99_ms for r in kept)
        )
        for (way, connections), kept in results.items()
    ]
