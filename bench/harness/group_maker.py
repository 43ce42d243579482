"""Stores groups with many acked holes, as their coordinator would: for what the next coordinator takes over.

    python -m bench.harness.group_maker FOLDER GROUPS HOLES

It is a broker with an empty folder, and writes the records of groups that hand out and ack. To claim and ack each
message took minutes. At the end it kills itself: nothing is handed over.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from filer.clock import Clock, SystemClock
from filer.keys import GROUPS_TOPIC
from filer.stores.open_store import open_store
from filer.stores.store_address import StoreAddress
from groups.records import Acked, Created, Progress, Reached, key_of
from groups.settings import default_settings, parse_settings
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.groups.group_log import GroupLog
from mq.groups.segment_groups import SegmentGroups
from mq.topic.topic_view import TopicView

TOPIC = "bench"
MOST_IN_FLIGHT = 100_000
ACKED_AT_ONCE = 500
PUBLISHED_ROWS = 10_000


async def make_groups(folder: Path, groups: int, holes: int) -> None:
    """Groups `g0`, `g1`, … that have acked every second of `2 * holes` messages."""
    clock, settings = SystemClock(), BrokerSettings.model_validate({})
    broker = Broker(open_store(StoreAddress(str(folder)), clock), clock, InProcessCoordinator(), settings)
    await broker.start("http://127.0.0.1:1")
    await _publish(broker, max(2 * holes, 1))
    log = await _log(broker)
    made = (_store(log, f"g{number}", holes, clock) for number in range(groups))
    await asyncio.gather(*made)


async def _log(broker: Broker) -> GroupLog:
    """The log of all groups, whose topic is made."""
    coordinator = await broker.groups.coordinator(TOPIC, "g0", make=True)
    assert isinstance(coordinator, SegmentGroups)
    runtime = await broker.topics.topic(GROUPS_TOPIC)
    ((segment, writer),) = runtime.writers.items()
    return GroupLog(runtime, segment, writer, broker.reader_of(TopicView(runtime)))


async def _store(log: GroupLog, name: str, holes: int, clock: Clock) -> None:
    """Store what a coordinator stores of a group: that it begins, what it hands out, and what is acked."""
    at, key = clock.now_us() // 1000, key_of(TOPIC, name)
    settings = parse_settings({"max_in_flight": MOST_IN_FLIGHT}, default_settings(TOPIC, "stored")).in_force()
    await log.append(key, Created(at=at, id=clock.ulid(), settings=settings, positions=[(0, 0)]), replicated=False)
    if holes:
        await log.append(key, Progress(at=at, reached=[Reached(0, 0, 2 * holes)]), replicated=False)
    for start in range(0, holes, ACKED_AT_ONCE):
        offsets = range(2 * start, 2 * min(start + ACKED_AT_ONCE, holes), 2)
        acked = [Acked(0, offset, offset + 1, 1) for offset in offsets]
        await log.append(key, Progress(at=at, acked=acked), replicated=False)


async def _publish(broker: Broker, count: int) -> None:
    runtime, _ = await broker.administration.put(TOPIC, {})
    schema = runtime.schema.published
    for start in range(0, count, PUBLISHED_ROWS):
        values = [b"%d" % number for number in range(start, min(start + PUBLISHED_ROWS, count))]
        columns = [
            pa.array(values, field.type) if field.name == "value" else pa.nulls(len(values), field.type)
            for field in schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        await runtime.publisher.publish_rows(rows, rows.nbytes)


def main(arguments: Sequence[str]) -> None:
    """Make them, and die."""
    folder, groups, holes = arguments
    asyncio.run(_made_and_killed(Path(folder), int(groups), int(holes)))


async def _made_and_killed(folder: Path, groups: int, holes: int) -> None:
    await make_groups(folder, groups, holes)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
