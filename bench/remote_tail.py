"""How much later a message reaches a subscriber at a broker that does not own the segment."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.harness.local_cluster import local_cluster
from bench.harness.publishing import TOPIC
from bench.tail_latency import tail_delays_ms

TARGET_MS = 50.0


@dataclass(frozen=True, slots=True)
class RemoteTail:
    """Medians in milliseconds: from sent to read at each broker, and of the difference per message."""

    owner_ms: float
    other_ms: float
    difference_ms: float


def measure_remote_tail(*, seconds: float, show_progress: Callable[[str], None]) -> RemoteTail:
    """Publish at the owner, and subscribe there and at another broker at the same time."""
    show_progress("subscribers at the owner and elsewhere")
    with local_cluster() as cluster:
        cluster.create_topic(TOPIC)
        owner = cluster.segments(TOPIC)[0].owner
        other = next(name for name in cluster.brokers if name != owner)
        urls = [cluster.brokers[name].url for name in (owner, other)]
        at_owner, at_other = tail_delays_ms(urls[0], urls, seconds=seconds)
    return RemoteTail(
        statistics.median(at_owner),
        statistics.median(at_other),
        statistics.median(other - owner for owner, other in zip(at_owner, at_other, strict=True)),
    )
