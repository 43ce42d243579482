"""How many requests to S3 brokers send: idle, by topic and segment, and at steady rates of messages.

An S3 server in memory counts them (`harness/request_counts.py`), with puts that take some 50 ms longer. Roll-ups are
written after 20 s and replaced files deleted 20 s later, instead of ten minutes and an hour, so that both are in what
is counted. `bench/s3_costs.py` makes money of these counts.
"""

import argparse
import asyncio
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from bench.harness.local_cluster import BenchCluster, forget_settings, local_cluster
from bench.harness.request_counts import KINDS
from bench.harness.running import console, machine, show_progress
from braidmq import AsyncClient

TOPIC = "counted"
PUT_DELAY_SECONDS = 0.05
VALUE_BYTES = 200
BATCH_SECONDS = 0.01
AS_SOON_SECONDS = {"BRAIDMQ_ROLLUP_AGE": 20.0, "BRAIDMQ_GRACE": 20.0}
NEVER_SCRUBBED = {"BRAIDMQ_SCRUB_DAYS": 0.0}
WARM_UP_SECONDS = 45.0
"""Longer than what is put off: then as much is rolled up and deleted as comes."""
IDLE_TOPICS = 20


@dataclass(frozen=True, slots=True)
class Counted:
    """Requests per second, by kind."""

    what: str
    rates: dict[str, float]


@dataclass(frozen=True, slots=True)
class Load:
    """So many messages a second to a topic of so many segments, or to each of several topics."""

    messages_per_second: int
    segments: int
    topics: int = 1
    value_bytes: int = VALUE_BYTES

    @property
    def what(self) -> str:
        """In words."""
        each = f"{self.messages_per_second:,} messages/s, {self.segments} segment{'s' * (self.segments > 1)}"
        sized = each if self.value_bytes == VALUE_BYTES else f"{each}, {self.value_bytes:,} B"
        return sized if self.topics == 1 else f"{self.topics} topics, each {sized}"


LOADS = [Load(1, 1), Load(100, 1), Load(10_000, 1), Load(100, 4), Load(10_000, 4)]
SPREAD = [Load(10, 1, topics=10, value_bytes=1_000), Load(1_000, 1, value_bytes=1_000)]
"""A tenth of 1 MB/s into 100 topics, and a hundredth of 100 MB/s: topics share no puts, and an S3 server in Python that
answers four hundred puts a second would be what is measured."""


def idle(brokers: int, seconds: float) -> Iterator[Counted]:
    """Count what nobody asked for: without topics, with topics of a segment, with one topic of as many segments."""
    with local_cluster(brokers=brokers, put_delay_seconds=PUT_DELAY_SECONDS, more_seconds=AS_SOON_SECONDS) as cluster:
        yield asyncio.run(_count(cluster, f"{brokers} brokers, no topic", seconds))
        for number in range(IDLE_TOPICS):
            cluster.create_topic(f"idle-{number}", segments=1)
        yield asyncio.run(_count(cluster, f"{brokers} brokers, {IDLE_TOPICS} topics of 1 segment", seconds))
        cluster.create_topic(TOPIC, segments=IDLE_TOPICS)
        what = f"{brokers} brokers, and a topic of {IDLE_TOPICS} segments"
        yield asyncio.run(_count(cluster, what, seconds))


def loaded(load: Load, seconds: float) -> Counted:
    """Count at one broker, while messages are published steadily by a producer of the Python client."""
    with local_cluster(
        brokers=1, put_delay_seconds=PUT_DELAY_SECONDS, more_seconds=AS_SOON_SECONDS | NEVER_SCRUBBED
    ) as cluster:
        for topic in _topics(load):
            cluster.create_topic(topic, segments=load.segments)
        return asyncio.run(_published(cluster, load, seconds))


async def _published(cluster: BenchCluster, load: Load, seconds: float) -> Counted:
    url = next(iter(cluster.brokers.values())).url
    publishing = asyncio.create_task(_publish_to_all(url, load))
    counting = asyncio.create_task(_count(cluster, load.what, seconds))
    await asyncio.wait([publishing, counting], return_when=asyncio.FIRST_COMPLETED)
    if publishing.done():
        counting.cancel()
        await publishing
    publishing.cancel()
    await asyncio.wait([publishing])
    return await counting


def _topics(load: Load) -> list[str]:
    return [TOPIC if load.topics == 1 else f"{TOPIC}-{number}" for number in range(load.topics)]


async def _publish_to_all(url: str, load: Load) -> None:
    async with AsyncClient(url) as client, asyncio.TaskGroup() as tasks:
        for topic in _topics(load):
            tasks.create_task(_publish(client, topic, load))


async def _publish(client: AsyncClient, topic: str, load: Load) -> None:
    loop = asyncio.get_running_loop()
    pause_seconds = max(BATCH_SECONDS, 1 / load.messages_per_second)
    # Topics do not begin at the same moment.
    await asyncio.sleep(random.random() * pause_seconds)
    start, sent = loop.time(), 0
    async with client.producer(topic) as producer:
        while True:
            due = int((loop.time() - start) * load.messages_per_second) + 1
            for number in range(sent, due):
                await producer.send(os.urandom(load.value_bytes), key=f"key-{number % 1000}")
            sent = due
            await asyncio.sleep(pause_seconds)


async def _count(cluster: BenchCluster, what: str, seconds: float) -> Counted:
    show_progress(what)
    await asyncio.sleep(WARM_UP_SECONDS)
    before, began = cluster.store_requests(), asyncio.get_running_loop().time()
    await asyncio.sleep(seconds)
    requests, took_seconds = cluster.store_requests() - before, asyncio.get_running_loop().time() - began
    return Counted(what, {kind: requests[kind] / took_seconds for kind in KINDS})


def main() -> None:
    """Measure, and print a table of requests per second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds that are counted in each case (60)")
    parser.add_argument("--only", choices=("idle", "loads", "spread"), help="count only this")
    options = parser.parse_args()
    forget_settings()
    table = Table(title=f"requests to S3 per second; {machine()}", title_justify="left")
    for name in ("", *KINDS):
        table.add_column(name, justify="right" if name else "left")
    counted: list[Counted] = []
    if options.only in (None, "idle"):
        counted += [each for brokers in (1, 3) for each in idle(brokers, options.seconds)]
    for name, loads in (("loads", LOADS), ("spread", SPREAD)):
        if options.only in (None, name):
            counted += [loaded(load, options.seconds) for load in loads]
    for each in counted:
        table.add_row(each.what, *(f"{each.rates[kind]:.3f}" for kind in KINDS))
    console().print(table)


if __name__ == "__main__":
    main()
