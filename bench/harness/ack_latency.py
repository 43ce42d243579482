"""How long a publish waits for its answer on a store with slow puts, with acks=stored and acks=replicated."""

import itertools
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.harness.local_cluster import local_cluster
from bench.harness.server_process import scratch_folder
from bench.harness.wrk import RAW, WrkResult, run_wrk

PUT_DELAY_SECONDS = 0.05
SEGMENTS, REPLICAS, MESSAGE_BYTES = 3, 2, 100
# With one publisher, segments are idle or wait for the spacing. With eight, a put is always in flight.
CONNECTIONS = (1, 8)


@dataclass(frozen=True, slots=True)
class Variant:
    """The acks, and whether the files of a segment are spaced as on S3 by default."""

    acks: str
    spaced: bool


VARIANTS = (Variant("stored", spaced=False), Variant("stored", spaced=True), Variant("replicated", spaced=True))


@dataclass(frozen=True, slots=True)
class AckLatency:
    """Medians over all rounds of the percentiles of a round."""

    variant: Variant
    connections: int
    p50_ms: float
    p99_ms: float


def measure_acks(*, rounds: int, seconds: float, show_progress: Callable[[str], None]) -> list[AckLatency]:
    """Publish single messages in each variant in turn, round after round. Spacing is a setting of the cluster."""
    measured: list[AckLatency] = []
    for spaced in (False, True):
        variants = [variant for variant in VARIANTS if variant.spaced is spaced]
        interval = None if spaced else 0.0
        with local_cluster(put_delay_seconds=PUT_DELAY_SECONDS, flush_interval_seconds=interval) as cluster:
            cluster.create_topic("acks", segments=SEGMENTS, replicas=REPLICAS)
            url = f"{cluster.brokers['broker-1'].url}/v1/topics/acks/messages"
            measured += _measure(url, variants, rounds, seconds, show_progress)
    return measured


def _measure(
    url: str, variants: list[Variant], rounds: int, seconds: float, show_progress: Callable[[str], None]
) -> list[AckLatency]:
    results: dict[tuple[Variant, int], list[WrkResult]] = {
        each: [] for each in itertools.product(variants, CONNECTIONS)
    }
    with scratch_folder() as folder:
        body = folder / "body"
        body.write_bytes(os.urandom(MESSAGE_BYTES))
        for number in range(rounds + 1):
            for (variant, connections), kept in results.items():
                show_progress(f"acks={variant.acks}, {connections} connections, round {number} of {rounds}")
                result = run_wrk(f"{url}?acks={variant.acks}", body, RAW, connections=connections, seconds=seconds)
                if number:
                    kept.append(result)
    return [
        AckLatency(
            variant, connections, statistics.median(r.p50_ms for r in kept), statistics.median(r.p99_ms for r in kept)
        )
        for (variant, connections), kept in results.items()
    ]
