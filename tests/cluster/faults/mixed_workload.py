"""The workload during faults, and the check at its end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.checker.consumers import Consumer
from tests.cluster.checker.killed_consumers import ProcessConsumer
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.verdict import judge, summary
from tests.cluster.checker.workload import CAPACITY, FINISH_SECONDS, Workload
from tests.support.cluster.cluster import Cluster

# Slow enough that brokers, ZooKeeper and the workload share two processors, and none counts as dead.
PAUSE_SECONDS = 0.2
# For tests that run beside others, and wait most of their time for sessions to end: what happens then counts, and not
# how much of it.
LONG_PAUSE_SECONDS = 0.8
# Who goes back reads again what has been sent, which takes processor time from all.
RECONNECT_PAUSES = 15
TIMEOUT_SECONDS = 10.0
ARROW_ROWS = 20
SHOWN = 20


@contextlib.asynccontextmanager
async def topics_for_a_while(
    cluster: Cluster, settings: Mapping[str, Mapping[str, Any]]
) -> AsyncIterator[tuple[str, ...]]:
    """Create topics with these settings, and delete them if all went well, so that they do not disturb later ones."""
    # A topic needs as many brokers as it has replicas, and the one that is asked may not have seen the others yet.
    await cluster.wait_until_settled()
    for topic, each in settings.items():
        await cluster.create_topic(topic, **each)
    await cluster.wait_until_settled(*settings)
    yield tuple(settings)
    for topic in settings:
        await cluster.delete_topic(topic)


def mixed_workload(
    cluster: Cluster,
    topics: Sequence[str],
    *,
    seed: int,
    identified: bool = True,
    processes_in: Path | None = None,
    finish_seconds: float = FINISH_SECONDS,
    arrow_rows: int = ARROW_ROWS,
    pause_seconds: float = PAUSE_SECONDS,
    capacity: int = CAPACITY,
) -> Workload:
    """Every form of publishing, with and without a producer id, and every way of reading, on each topic.

    With a folder, a consumer of each topic is a process that keeps its file there.
    """
    processes = [] if processes_in is None else [ProcessConsumer(f"{t}-process", t, processes_in) for t in topics]
    return Workload(
        cluster.urls,
        producers=[p for topic in topics for p in _producers(topic, identified, arrow_rows, pause_seconds)],
        consumers=[consumer for topic in topics for consumer in _consumers(topic, pause_seconds)],
        processes=processes,
        seed=seed,
        timeout_seconds=TIMEOUT_SECONDS,
        finish_seconds=finish_seconds,
        capacity=capacity,
        access=cluster.access,
    )


def light_load(cluster: Cluster, topics: Sequence[str], *, seed: int) -> Workload:
    """A smaller workload, for tests that run beside others."""
    producers, consumers = [], []
    for topic in topics:
        producers += [
            each for each in _producers(topic, True, ARROW_ROWS, PAUSE_SECONDS) if each.form in ("raw", "json")
        ]
        consumers += [each for each in _consumers(topic, PAUSE_SECONDS) if each.rewinds]
    return Workload(
        cluster.urls,
        producers=producers,
        consumers=consumers,
        seed=seed,
        timeout_seconds=TIMEOUT_SECONDS,
        access=cluster.access,
    )


def _producers(topic: str, identified: bool, arrow_rows: int, pause_seconds: float) -> list[Producer]:
    repeat_every = 10 if identified else None
    return [
        Producer(f"{topic}-raw", topic, "raw", identified=identified, pause_seconds=pause_seconds),
        Producer(
            f"{topic}-json",
            topic,
            "json",
            keys=7,
            identified=identified,
            repeat_every=repeat_every,
            pause_seconds=pause_seconds,
        ),
        Producer(f"{topic}-ndjson", topic, "ndjson", keys=5, acks="stored", pause_seconds=pause_seconds),
        Producer(
            f"{topic}-arrow",
            topic,
            "arrow",
            keys=11,
            rows=arrow_rows,
            identified=identified,
            pause_seconds=pause_seconds,
        ),
    ]


def _consumers(topic: str, pause_seconds: float) -> list[Consumer]:
    return [
        Consumer(f"{topic}-stream", topic, "stream"),
        Consumer(
            f"{topic}-rewinding", topic, "stream", rewinds=True, reconnect_seconds=RECONNECT_PAUSES * pause_seconds
        ),
        Consumer(f"{topic}-pages", topic, "browse", rewinds=True, pause_seconds=pause_seconds),
        Consumer(f"{topic}-late", topic, "stream", start="latest"),
    ]


async def demand_clean(load: Workload, cluster: Cluster, folder: Path) -> str:
    """Read everything to its end and judge. Returns a summary.

    Raises `AssertionError` with the first complaints. The whole history and the brokers' logs are left in `folder`
    then, for `python -m tests.cluster.checker.judge`.
    """
    path = folder / "history.json"
    try:
        await load.read_to_the_end()
    except BaseException:
        _leave(load, cluster, path)
        raise
    complaints = judge(load.history) + await asyncio.to_thread(cluster.topic_complaints)
    if complaints:
        _leave(load, cluster, path)
        shown = "\n".join(complaints[:SHOWN])
        raise AssertionError(f"{len(complaints)} complaints; the history is in {path}:\n{shown}")
    return summary(load.history)


def _leave(load: Workload, cluster: Cluster, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    load.history.write(path)
    cluster.write_logs(path.parent / "logs")
