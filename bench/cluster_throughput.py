"""How much brokers carry together: Arrow batches into six segments, at one broker and at three."""

import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.harness.local_cluster import BenchCluster, local_cluster
from bench.harness.server_process import scratch_folder
from bench.harness.wrk import ARROW, random_batch, run_wrk

BATCH_MESSAGES, MESSAGE_BYTES, SEGMENTS, CONNECTIONS = 1_000, 1024, 6, 6


@dataclass(frozen=True, slots=True)
class ClusterThroughput:
    """Messages per second that all brokers together acknowledged: the median of all rounds."""

    what: str
    messages_per_second: float


def measure_brokers(*, rounds: int, seconds: float, show_progress: Callable[[str], None]) -> list[ClusterThroughput]:
    """Measure with the same total number of connections each time, divided among the brokers."""
    one = _at(1, rounds, seconds, show_progress, "1 broker", to_owners=True)
    owners = _at(3, rounds, seconds, show_progress, "3 brokers, each sent what it owns", to_owners=True)
    mixed = _at(3, rounds, seconds, show_progress, "3 brokers, each sent a bit of everything", to_owners=False)
    return [one, owners, mixed]


def _at(
    brokers: int, rounds: int, seconds: float, show_progress: Callable[[str], None], what: str, *, to_owners: bool
) -> ClusterThroughput:
    rates = []
    for number in range(rounds + 1):
        show_progress(f"throughput of {what}, round {number} of {rounds}")
        with local_cluster(brokers=brokers) as cluster, scratch_folder() as folder:
            cluster.create_topic("throughput", segments=SEGMENTS)
            rate = _rate(cluster, _bodies(cluster, folder, to_owners=to_owners), seconds)
        if number:
            rates.append(rate)
    return ClusterThroughput(what, statistics.median(rates))


def _bodies(cluster: BenchCluster, folder: Path, *, to_owners: bool) -> list[tuple[str, Path]]:
    """For each broker its URL, and the file with its request."""
    segments = cluster.segments("throughput")
    bodies = []
    for name, broker in cluster.brokers.items():
        keys = [each.key for each in segments if not to_owners or each.owner == name]
        path = folder / name
        _write_batch(path, keys)
        bodies.append((f"{broker.url}/v1/topics/throughput/messages", path))
    return bodies


def _write_batch(path: Path, keys: Sequence[str]) -> None:
    """Write a batch of messages under these keys in turn."""
    values = random_batch(BATCH_MESSAGES, MESSAGE_BYTES)["value"]
    chosen = pa.array([keys[row % len(keys)].encode() for row in range(BATCH_MESSAGES)], pa.binary())
    batch = pa.record_batch([chosen, values], ["key", "value"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _rate(cluster: BenchCluster, bodies: Sequence[tuple[str, Path]], seconds: float) -> float:
    connections = CONNECTIONS // len(cluster.brokers)
    with ThreadPoolExecutor(len(bodies)) as pool:
        results = pool.map(
            lambda target: run_wrk(target[0], target[1], ARROW, connections=connections, seconds=seconds),
            bodies,
        )
        return sum(BATCH_MESSAGES * result.requests / result.seconds for result in results)
