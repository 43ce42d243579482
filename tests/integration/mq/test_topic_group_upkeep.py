"""What becomes of the files of a topic group: roll-ups, other segments, retention, a restart. Members see their own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from filer.clock import ManualClock
from filer.format.schema import MessageSchema
from filer.format.segment_file import decode
from filer.keys import segments_folder
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.topic.positions import PositionExpired
from filer.verification.stored_segment import ReadPlan
from filer.verification.stored_topic import verify_topic
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.transitions.split_merge_requests import SplitRequest

GRACE_SECONDS = 60.0
MEMBERS = ["orders", "payments"]


@contextlib.asynccontextmanager
async def running(store: Store, clock: ManualClock) -> AsyncIterator[Broker]:
    """A broker whose rounds only the test begins."""
    settings = BrokerSettings(grace=GRACE_SECONDS, rollup_age=30, maintenance_interval=3600, report_interval=3600)
    broker = Broker(store, clock, InProcessCoordinator(), settings)
    await broker.start("http://127.0.0.1:1")
    for task in asyncio.all_tasks():
        if task.get_name() == "maintenance":
            task.cancel()
    try:
        yield broker
    finally:
        await broker.close()


async def publish(broker: Broker, numbers: range) -> None:
    """Each number to each member, a file each, under some keys."""
    for number in numbers:
        for member in MEMBERS:
            view = await broker.topics.view(member)
            config = view.state.config
            rows = {"key": b"k%d" % (number % 3), "value": b"%b %d" % (member.encode(), number)}
            batch = pa.RecordBatch.from_pylist([rows], MessageSchema.of(config.key_type, config.value_type).rows)
            await view.runtime.publisher.publish_rows(view.rows_of(batch), 20)


async def read(broker: Broker, topic: str) -> list[str]:
    """All messages of a topic, from where it begins now."""
    reader = await broker.reader(topic)
    found, positions = list[str](), reader.earliest()
    while True:
        runs, reached = await reader.read(positions, max_rows=7, max_bytes=1 << 20)
        found += [value.decode() for run in runs for value in run.table["value"].to_pylist()]
        if not runs and not reader.may_go_on:
            return found
        positions = reached


def numbers(found: list[str], member: str) -> list[int]:
    assert {value.split()[0] for value in found} <= {member}
    return [int(value.split()[1]) for value in found]


async def check_verified(broker: Broker, *, least: int) -> None:
    """Every byte of the group is sound; a member has no files of its own, and nothing to check but its record."""
    verdicts = [each async for each in verify_topic(broker.store, broker.catalogue, "shop", plan=ReadPlan())]
    assert len(verdicts) >= least and {each.condition for each in verdicts} == {"ok"}
    of_member = [each async for each in verify_topic(broker.store, broker.catalogue, "orders", plan=ReadPlan())]
    assert {each.condition for each in of_member} <= {"ok"}


async def test_members_are_read_alike_whatever_becomes_of_the_files() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        settings = {"topics": MEMBERS, "splittable": True, "retention": {"seconds": 600}, "segment_seconds": 200}
        await broker.topic_groups.put("shop", settings)
        await publish(broker, range(20))
        marker = await (await broker.reader("orders")).latest()
        before = len([info async for info in store.list(segments_folder("shop"))])
        await clock.advance(31)
        await broker.maintenance.round()
        await clock.advance(GRACE_SECONDS)
        await broker.maintenance.round()
        files = [info.key async for info in store.list(segments_folder("shop")) if info.key.endswith(".parquet")]
        assert len(files) < before / 4
        # The rows of a roll-up still say to which member they belong.
        rolled_up = decode((await store.get(files[0])).data)
        assert rolled_up["_topic"].to_pylist()[:2] == MEMBERS
        for member in MEMBERS:
            assert numbers(await read(broker, member), member) == list(range(20))
        await check_verified(broker, least=2)
        # Another segment by age, and two by a split. A group's messages are behind all of them in order per key.
        await clock.advance(110)
        await broker.maintenance.round()
        state = (await broker.topics.topic("shop")).state
        (opened,) = state.open_segments
        assert opened.reason == "roll"
        await publish(broker, range(20, 30))
        await broker.administration.split_or_merge("shop", SplitRequest(opened.id))
        await publish(broker, range(30, 40))
    async with running(store, clock) as broker:
        for member in MEMBERS:
            assert sorted(numbers(await read(broker, member), member)) == list(range(40))
        await check_verified(broker, least=4)
        # Retention removes what is old, of all members; whoever stood there is told.
        await clock.advance(405)
        await broker.maintenance.round()
        for member in MEMBERS:
            assert sorted(numbers(await read(broker, member), member)) == list(range(20, 40))
            reader = await broker.reader(member)
            with pytest.raises(PositionExpired):
                await reader.check({0: 0})
            await reader.check(marker)
        for _ in range(3):
            await clock.advance(GRACE_SECONDS)
            await broker.maintenance.round()
        # The seal stays until it is as old as that itself.
        left = [info.key async for info in store.list(f"{segments_folder('shop')}segment=0/")]
        assert [key.rpartition("/")[2] for key in left] == ["00000000000000000040.parquet"]
        await check_verified(broker, least=2)
