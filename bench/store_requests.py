"""How many requests to S3 brokers send: idle, by topic and segment, and at steady rates of messages.

An S3 server in memory counts them (`harness/request_counts.py`), with puts that take some 50 ms longer. Roll-ups are
written after 20 s and replaced files deleted 20 s later, instead of ten minutes and an hour, so that both are in what
is counted. `bench/s3_costs.py` makes money of these counts.
"""

import argparse
import asyncio
import os
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
    """So many messages a second to a topic of so many segments."""

    messages_per_second: int
    segments: int

    @property
    def what(self) -> str:
        """In words."""
        return f"{self.messages_per_second:,} messages/s, {self.segments} segment{'s' * (self.segments > 1)}"


LOADS = [Load(1, 1), Load(100, 1), Load(10_000, 1), Load(100, 4), Load(10_000, 4)]


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
        cluster.create_topic(TOPIC, segments=load.segments)
        return asyncio.run(_published(cluster, load, seconds))


async def _published(cluster: BenchCluster, load: Load, seconds: float) -> Counted:
    url = next(iter(cluster.brokers.values())).url
    publishing = asyncio.create_task(_publish(url, load))
    counting = asyncio.create_task(_count(cluster, load.what, seconds))
    await asyncio.wait([publishing, counting], return_when=asyncio.FIRST_COMPLETED)
    if publishing.done():
        counting.cancel()
        await publishing
    publishing.cancel()
    await asyncio.wait([publishing])
    return await counting


async def _publish(url: str, load: Load) -> None:
    loop = asyncio.get_running_loop()
    start, sent = loop.time(), 0
    async with AsyncClient(url) as client, client.producer(TOPIC) as producer:
        while True:
            due = int((loop.time() - start) * load.messages_per_second) + 1
            for number in range(sent, due):
                await producer.send(os.urandom(VALUE_BYTES), key=f"key-{number % 1000}")
            sent = due
            await asyncio.sleep(BATCH_SECONDS)


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
    parser.add_argument("--only", choices=("idle", "loads"), help="count only this")
    options = parser.parse_args()
    forget_settings()
    table = Table(title=f"requests to S3 per second; {machine()}", title_justify="left")
    for name in ("", *KINDS):
        table.add_column(name, justify="right" if name else "left")
    counted: list[Counted] = []
    if options.only != "loads":
        counted += [each for brokers in (1, 3) for each in idle(brokers, options.seconds)]
    if options.only != "idle":
        counted += [loaded(load, options.seconds) for load in LOADS]
    for each in counted:
        table.add_row(each.what, *(f"{each.rates[kind]:.3f}" for kind in KINDS))
    console().print(table)


if __name__ == "__main__":
    main()
