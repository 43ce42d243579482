"""How long a publish waits for its answer where every put takes its time: once stored, and once replicated."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.load import RAW, LoadResult, run_wrk
from bench.local_cluster import local_cluster
from bench.server_process import scratch_folder

PUT_DELAY_SECONDS = 0.05
CONNECTIONS, SEGMENTS, REPLICAS, MESSAGE_BYTES = 8, 3, 2, 100
KINDS = ("stored", "replicated")


@dataclass(frozen=True, slots=True)
class AckLatency:
    """Medians, over all rounds, of a round's percentiles."""

    acks: str
    p50_ms: float
    p99_ms: float


def measure_acks(*, rounds: int, seconds: float, tell: Callable[[str], None]) -> list[AckLatency]:
    """Publish single messages to the same topic on the same store either way, round after round."""
    results: dict[str, list[LoadResult]] = {acks: [] for acks in KINDS}
    with local_cluster(put_delay_seconds=PUT_DELAY_SECONDS) as cluster, scratch_folder() as folder:
        cluster.create_topic("acks", segments=SEGMENTS, replicas=REPLICAS)
        body = folder / "body"
        body.write_bytes(os.urandom(MESSAGE_BYTES))
        url = f"{cluster.brokers['broker-1'].url}/v1/topics/acks/messages"
        for number in range(rounds + 1):
            for acks in KINDS:
                tell(f"acks={acks}, round {number} of {rounds}")
                result = run_wrk(f"{url}?acks={acks}", body, RAW, connections=CONNECTIONS, seconds=seconds)
                if number:
                    results[acks].append(result)
    return [
        AckLatency(acks, statistics.median(r.p50_ms for r in measured), statistics.median(r.p99_ms for r in measured))
        for acks, measured in results.items()
    ]
