"""How much all reads together may hold."""

import asyncio
from collections.abc import Iterator

import pytest

from mq.base.errors import ReadsFull
from mq.limits import read_budget
from mq.limits.read_budget import COPIES, LARGE_BYTES, PAGE_BYTES, SMALL_SHARE, ReadBudget
from mq.limits.turns import Turns

LIMIT = 100
PAGES = Turns(lambda: 0.0).pages


@pytest.fixture
def budget() -> Iterator[ReadBudget]:
    made = ReadBudget(LIMIT, PAGES)
    yield made
    assert made.held_bytes == 0, "everything was given back"


async def test_first_come_first_served(budget: ReadBudget) -> None:
    holder, large, small = budget.lease(), budget.lease(), budget.lease()
    assert await holder.take(60)
    waiting = [asyncio.create_task(large.take(90)), asyncio.create_task(small.take(10))]
    await asyncio.sleep(0)
    assert (budget.held_bytes, large.held_bytes, small.held_bytes) == (60, 0, 0), "the small one waits for its turn too"
    holder.release()
    assert await asyncio.gather(*waiting) == [True, True]
    assert budget.held_bytes == LIMIT
    large.release()
    small.release()


async def test_a_read_larger_than_all_goes_on_alone(budget: ReadBudget) -> None:
    huge, other = budget.lease(), budget.lease()
    assert await huge.take(10 * LIMIT)
    waiting = asyncio.create_task(other.take(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    huge.release()
    assert await waiting
    other.release()


async def test_who_holds_something_never_waits(budget: ReadBudget) -> None:
    first, second = budget.lease(), budget.lease()
    assert await first.take(50) and await second.take(50)
    assert not await first.take(1) and not await second.take(1), "each ends its page: neither waits for the other"
    first.release()
    assert await second.take(50)
    second.release()


async def test_what_waits_too_long_is_told(budget: ReadBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_budget, "WAIT_SECONDS", 0.001)
    holder, late = budget.lease(), budget.lease()
    assert await holder.take(LIMIT)
    with pytest.raises(ReadsFull, match="--read-bytes"):
        await late.take(1)
    holder.release()
    assert await late.take(LIMIT), "it left the queue"
    late.release()


async def test_a_read_that_is_cancelled_holds_and_waits_for_nothing(budget: ReadBudget) -> None:
    holder, gone, third = budget.lease(), budget.lease(), budget.lease()
    assert await holder.take(LIMIT)
    waiting, after = asyncio.create_task(gone.take(LIMIT)), asyncio.create_task(third.take(10))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    holder.release()
    assert await after
    third.release()


async def test_room_that_is_given_in_the_moment_of_a_cancellation_comes_back(budget: ReadBudget) -> None:
    holder, gone = budget.lease(), budget.lease()
    assert await holder.take(LIMIT)
    waiting = asyncio.create_task(gone.take(LIMIT))
    await asyncio.sleep(0)
    holder.release()  # the room is given to the other, which has not run since
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_what_was_rendered_counts_and_a_lost_answer_does_not(budget: ReadBudget) -> None:
    lease = budget.lease()
    assert await lease.take(10)
    lease.keep(3 * LIMIT)
    assert budget.held_bytes == 3 * LIMIT, "it is there, above the limit or not"
    lease.keep(5)
    del lease
    assert budget.held_bytes == 0


async def test_one_page_decodes_so_much() -> None:
    budget = ReadBudget(10 * PAGE_BYTES, PAGES)
    lease = budget.lease()
    assert await lease.take(2 * PAGE_BYTES), "a single row group may be larger"
    assert not await lease.take(1)


async def test_after_a_failure_no_part_of_the_read_gets_room(budget: ReadBudget) -> None:
    holder = budget.lease()
    assert await holder.take(LIMIT)
    with pytest.raises(ValueError, match="failed"), budget.lease() as failed:
        waiting = asyncio.create_task(failed.take(10))
        await asyncio.sleep(0)
        raise ValueError("failed")
    holder.release()
    assert not await waiting, "it waited in another task"
    assert not await failed.take(10)


MIB = 1024 * 1024
ROOMY = 64 * MIB


async def test_a_large_page_counts_with_its_copies_and_then_as_it_is_sent() -> None:
    seen: list[int] = []
    budget = ReadBudget(ROOMY, PAGES, seen.append)
    lease = budget.lease()
    assert await lease.take(LARGE_BYTES) and budget.held_bytes == LARGE_BYTES
    assert await lease.take(MIB)
    assert (lease.taken_bytes, budget.held_bytes) == (LARGE_BYTES + MIB, COPIES * (LARGE_BYTES + MIB))
    lease.keep(4 * MIB)
    lease.close()
    assert seen == [LARGE_BYTES, COPIES * (LARGE_BYTES + MIB), 4 * MIB, 0]


async def test_small_pages_never_wait_for_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = ReadBudget(ROOMY, PAGES)
    huge, large, small = budget.lease(), budget.lease(), budget.lease()
    assert await huge.take(2 * ROOMY)
    waiting = asyncio.create_task(large.take(4 * MIB))
    await asyncio.sleep(0)
    held = [budget.lease() for _ in range(ROOMY // SMALL_SHARE // MIB)]
    for each in held:
        assert await each.take(MIB)
    monkeypatch.setattr(read_budget, "WAIT_SECONDS", 0.001)
    with pytest.raises(ReadsFull):
        await small.take(MIB)
    assert not waiting.done()
    huge.close()
    assert await waiting
    large.close()
    for each in held:
        each.close()
    assert budget.held_bytes == 0


async def test_a_page_without_a_first_message_waits_for_the_room_that_it_lacks() -> None:
    budget = ReadBudget(ROOMY, PAGES)
    other, lease = budget.lease(), budget.lease()
    assert await other.take(16 * MIB) and await lease.take(MIB)
    assert not await lease.enlarge(), "it lacks nothing"
    assert not await lease.take(PAGE_BYTES)
    waiting = asyncio.create_task(lease.enlarge())
    await asyncio.sleep(0)
    assert (waiting.done(), lease.held_bytes) == (False, 0), "it holds nothing while it waits"
    other.close()
    assert await waiting
    assert await lease.take(MIB) and await lease.take(PAGE_BYTES)
    assert budget.held_bytes == COPIES * (MIB + PAGE_BYTES)
    lease.close()
    assert budget.held_bytes == 0
