"""Single messages that share a waiter until their file begins: in order, each at its own offset and time."""

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from filer.clock import settle
from filer.errors import SegmentSealed
from filer.format.requests import Position
from filer.format.segment_file import decode
from filer.segment.next_file import ACCEPTED_OVERHEAD_BYTES
from filer.segment.segment_log import SegmentRef
from filer.segment.writer import publish_queue
from filer.segment.writer.pending_request import Waiter
from filer.stores.decorators.faults import FaultKind
from tests.support.segment.segment_owners import single
from tests.support.segment.segment_world import FakeFollowers, SegmentWorld

REF = SegmentRef("events", 0)
TOGETHER = object()


@pytest.fixture
async def world() -> AsyncIterator[SegmentWorld]:
    made = SegmentWorld(REF)
    made.open_writer()
    yield made
    await made.close()


def gather(world: SegmentWorld, value: bytes, together: object = TOGETHER) -> tuple[Waiter, int]:
    gathered = world.writer.gather(single(value), 10, together)
    assert gathered is not None
    return gathered


async def test_those_that_come_before_their_file_share_a_waiter(world: SegmentWorld) -> None:
    waiters, numbers = zip(*(gather(world, b"%d" % number) for number in range(3)), strict=True)
    assert len({*waiters}) == 1 and numbers == (0, 1, 2)
    assert world.writer.pending_bytes == 30 and world.writer.accepted_end == 3
    assert await waiters[0] == [Position(0, 0, 3)]
    assert await world.values() == [b"0", b"1", b"2"]
    assert world.writer.pending_bytes == 0
    later, number = gather(world, b"3")
    assert later is not waiters[0] and number == 0
    assert await later == [Position(0, 3, 1)]


async def test_whatever_comes_between_keeps_its_place(world: SegmentWorld) -> None:
    first, _ = gather(world, b"a")
    between = world.append(b"b")
    second, number = gather(world, b"c")
    assert second is not first and number == 0
    assert [await each for each in (first, between, second)] == [[Position(0, n, 1)] for n in range(3)]
    assert await world.values() == [b"a", b"b", b"c"]


async def test_those_that_expire_at_another_time_have_a_waiter_of_their_own(world: SegmentWorld) -> None:
    first, _ = gather(world, b"a")
    second, number = gather(world, b"b", object())
    assert second is not first and number == 0


@pytest.mark.parametrize(
    ("name", "most"), [("MOST_GATHERED", 2), ("MOST_GATHERED_BYTES", 20)], ids=["messages", "bytes"]
)
async def test_only_so_many_share_a_waiter(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    monkeypatch.setattr(publish_queue, name, most)
    world = SegmentWorld(REF)
    world.open_writer()
    gathered = [gather(world, b"%d" % number) for number in range(5)]
    assert [number for _, number in gathered] == [0, 1, 0, 1, 0]
    assert [await waiter for waiter, _ in gathered[::2]] == [
        [Position(0, 0, 2)],
        [Position(0, 2, 2)],
        [Position(0, 4, 1)],
    ]
    await world.close()


async def test_each_has_the_time_at_which_it_came(world: SegmentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    now_us = world.clock.now_us()
    for value, seconds in ((b"a", 0), (b"b", 5), (b"c", -4)):
        monkeypatch.setattr(world.clock, "now_us", lambda seconds=seconds: now_us + seconds * 1_000_000)
        waiter, _ = gather(world, value)
    await waiter
    [facts] = world.writer.index.files
    table = decode((await world.memory.get(REF.key(facts.name))).data)
    stamps_us = table["_timestamp"].cast(pa.int64()).to_pylist()
    assert [stamp_us - now_us for stamp_us in stamps_us] == [0, 5_000_000, 5_000_000], "times do not fall"
    assert (facts.first_timestamp_us, facts.last_timestamp_us) == (now_us, now_us + 5_000_000)


async def test_none_of_them_is_answered_before_all_are_stored(world: SegmentWorld) -> None:
    world.faults.add("create", FaultKind.FAIL_BEFORE)
    waiter, _ = gather(world, b"a")
    gather(world, b"b")
    await settle()
    assert not waiter.done() and await world.values() == []
    await world.pass_seconds(10)
    assert waiter.result() == [Position(0, 0, 2)] and await world.values() == [b"a", b"b"]


async def test_followers_get_each_message_as_it_comes() -> None:
    world = SegmentWorld(REF, followers=FakeFollowers())
    assert world.open_writer().gather(single(b"a"), 10, TOGETHER) is None
    await world.close()


async def test_a_segment_that_is_being_sealed_takes_none(world: SegmentWorld) -> None:
    sealing = asyncio.create_task(world.writer.seal())
    await settle(1)
    with pytest.raises(SegmentSealed):
        world.writer.gather(single(b"a"), 10, TOGETHER)
    await sealing


async def test_those_for_which_nobody_waits_are_counted_each(world: SegmentWorld) -> None:
    world.faults.add("create", FaultKind.FAIL_BEFORE)
    waiter, _ = gather(world, b"a")
    gather(world, b"b")
    waiter.cancel()
    counted: list[int] = []
    world.writer._on_unstored = counted.append
    world.writer.count_abandoned()
    assert counted == [2 * (10 + ACCEPTED_OVERHEAD_BYTES)]
    await world.pass_seconds(10)
    assert sum(counted) == 0
