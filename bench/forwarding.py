"""What it costs to publish through a broker that forwards to the owner of the segment."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.harness.local_cluster import local_cluster
from bench.harness.server_process import scratch_folder
from bench.harness.wrk import ARROW, RAW, WrkResult, run_wrk, write_batch

BATCH_MESSAGES, BATCH_MESSAGE_BYTES, SINGLE_BYTES = 1_000, 1024, 100


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of request: its messages, its content type, and the number of connections."""

    what: str
    messages: int
    content_type: str
    connections: int


VARIANTS = (
    Variant("single, 1 connection", 1, RAW, 1),
    Variant("singles, 64 connections", 1, RAW, 64),
    Variant("Arrow 1,000 x 1 KiB, 1 connection", BATCH_MESSAGES, ARROW, 1),
    Variant("Arrow 1,000 x 1 KiB, 4 connections", BATCH_MESSAGES, ARROW, 4),
)


@dataclass(frozen=True, slots=True)
class Side:
    """Medians over all rounds of the throughput and of the median latency."""

    messages_per_second: float
    p50_ms: float


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The same requests sent to the owner, and to another broker."""

    variant: Variant
    direct: Side
    forwarded: Side


def measure_forwarding(*, rounds: int, seconds: float, show_progress: Callable[[str], None]) -> list[Forwarded]:
    """Measure both sides in turn, on the same segment of the same cluster."""
    with local_cluster() as cluster, scratch_folder() as folder:
        cluster.create_topic("forward")
        owner = cluster.segments("forward")[0].owner
        other = next(name for name in cluster.brokers if name != owner)
        results: dict[tuple[Variant, bool], list[WrkResult]] = {
            (variant, side): [] for variant in VARIANTS for side in (True, False)
        }
        for number in range(rounds + 1):
            for (variant, direct), measured in results.items():
                show_progress(f"{'direct' if direct else 'forwarded'}: {variant.what}, round {number} of {rounds}")
                url = f"{cluster.brokers[owner if direct else other].url}/v1/topics/forward/messages"
                body = _body(folder, variant)
                result = run_wrk(url, body, variant.content_type, connections=variant.connections, seconds=seconds)
                if number:
                    measured.append(result)
    return [
        Forwarded(variant, _side(variant, results[variant, True]), _side(variant, results[variant, False]))
        for variant in VARIANTS
    ]


def _body(folder: Path, variant: Variant) -> Path:
    path = folder / variant.content_type.rpartition("/")[2]
    if not path.exists():
        if variant.content_type == ARROW:
            write_batch(path, BATCH_MESSAGES, BATCH_MESSAGE_BYTES)
        else:
            path.write_bytes(os.urandom(SINGLE_BYTES))
    return path


def _side(variant: Variant, measured: list[WrkResult]) -> Side:
    return Side(
        statistics.median(variant.messages * each.requests / each.seconds for each in measured),
        statistics.median(each.p50_ms for each in measured),
    )
