import asyncio

import pyarrow as pa
import pytest

from filer.clock import settle
from filer.format.schema import TIMESTAMP
from mq.limits.front_store import FrontStore, Tail

MIB = 1024 * 1024


def table(first: int, count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


def numbers(found: pa.Table | None) -> list[int] | None:
    return None if found is None else found["n"].to_pylist()


def test_a_tail_reads_across_files() -> None:
    tail = Tail(10)
    assert (tail.start, tail.read(10, max_rows=5, max_bytes=MIB)) == (10, None)
    for first in (10, 13, 16):
        tail.append(table(first, 3), 24)
    assert (tail.start, tail.end) == (10, 19)
    assert numbers(tail.read(10, max_rows=100, max_bytes=MIB)) == list(range(10, 19))
    assert numbers(tail.read(14, max_rows=3, max_bytes=MIB)) == [14, 15, 16]
    assert numbers(tail.read(15, max_rows=100, max_bytes=1)) == [15]
    assert numbers(tail.read(11, max_rows=100, max_bytes=16)) == [11, 12]
    assert numbers(tail.read(11, max_rows=100, max_bytes=17)) == [11, 12, 13, 14, 15]
    assert tail.read(9, max_rows=1, max_bytes=MIB) is None
    assert tail.read(19, max_rows=1, max_bytes=MIB) is None
    tail.drop_oldest()
    assert tail.read(12, max_rows=1, max_bytes=MIB) is None
    assert numbers(tail.read(13, max_rows=1, max_bytes=MIB)) == [13]
    for _ in range(5):
        tail.drop_oldest()
    assert (tail.start, tail.end) == (19, 19)


def test_many_files_of_a_message_are_joined_a_bounded_number_at_a_time() -> None:
    tail = Tail(0)
    for number in range(300):
        tail.append(table(number, 1), 8)
    found = tail.read(7, max_rows=1000, max_bytes=MIB)
    assert found is not None and found["n"].num_chunks == 1
    assert numbers(found) == list(range(7, 135))
    assert numbers(tail.read(135, max_rows=10, max_bytes=MIB)) == list(range(135, 145))
    large = Tail(0)
    for number in range(8):
        large.append(table(number, 1), MIB)
    found = large.read(0, max_rows=1000, max_bytes=64 * MIB)
    assert found is not None and found["n"].num_chunks == 8, "large values are not copied"


def test_the_first_message_of_a_time() -> None:
    tail = Tail(10)
    assert tail.offset_of_time(10, 0) is None
    for times in ([1, 1, 2], [2], [4, 6]):
        tail.append(pa.table({"_timestamp": pa.array(times, TIMESTAMP)}), 8)
    found = [tail.offset_of_time(10, time) for time in (0, 1, 2, 3, 4, 5, 6, 7)]
    assert found == [10, 10, 12, 14, 14, 15, 15, 16]
    assert tail.offset_of_time(13, 1) == 13
    tail.drop_oldest()
    assert tail.offset_of_time(12, 2) is None
    assert tail.offset_of_time(13, 2) == 13


def test_the_budget_holds() -> None:
    store = FrontStore(MIB)
    assert store.try_reserve(MIB)
    assert not store.try_reserve(1)
    store.release(MIB // 2)
    assert store.try_reserve(MIB // 2)
    store.release(MIB)
    assert store.pending_bytes == 0
    assert not store.try_reserve(MIB + 1)


def test_recent_messages_make_way_oldest_first() -> None:
    store, tail = FrontStore(MIB), Tail(0)
    for n in range(1000):
        store.keep(tail, table(n, 1), 10)
        assert store.pending_bytes + store.recent_bytes <= MIB
    assert 0 < tail.start < tail.end == 1000
    held = tail.start
    assert store.try_reserve(MIB)
    assert tail.start > held
    assert store.recent_bytes == 0
    store.keep(tail, pa.table({"n": pa.array([], pa.int64())}), 0)
    assert (tail.end, store.recent_bytes) == (1000, 0)


async def test_waiters_go_on_when_room_is_given_back() -> None:
    store = FrontStore(MIB)
    store.try_reserve(MIB)
    waiting = [asyncio.create_task(store.room(0)) for _ in range(3)]
    await settle()
    assert not any(task.done() for task in waiting)
    store.release(1)
    assert await asyncio.gather(*waiting) == [True] * 3


async def test_whoever_holds_all_the_room_does_not_wait_for_it() -> None:
    store = FrontStore(MIB)
    store.try_reserve(MIB)
    assert not await store.room(MIB)
    first = asyncio.create_task(store.room(MIB // 2))
    await settle()
    assert not first.done()
    # The other half's holder would wait for the first, and the first for it.
    assert not await store.room(MIB // 2)
    store.release(MIB // 2)
    assert await first


async def test_a_waiter_that_gives_up_counts_no_more() -> None:
    store = FrontStore(MIB)
    store.try_reserve(MIB)
    waiting = asyncio.create_task(store.room(MIB // 2))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    second = asyncio.create_task(store.room(MIB // 2))
    await settle()
    assert not second.done()
    store.release(1)
    assert await second
