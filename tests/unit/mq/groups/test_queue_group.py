"""A queue group hands over: the leases are its last word, and tell nothing of what was decided before."""

import asyncio
from typing import cast

import pytest

from filer.clock import ManualClock, settle
from filer.errors import CorruptFile, SegmentMoved
from groups.queue.claims import Outcome, Verdict
from groups.queue.leases import Claim
from groups.queue.progress import QueueProgress
from groups.records import Leases, Progress, Reached, Record
from groups.settings import GroupSettings
from mq.groups.group_source import GroupSource
from mq.groups.message_feed import Feed
from mq.groups.queue_group import QueueGroup, Turn
from mq.groups.to_decide import AT_ONCE, ToDecide

FIRST, SECOND = Claim(0, 0, 1), Claim(0, 1, 1)


class Held:
    """Records in their order; each is acknowledged once it is released."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.waiting: list[asyncio.Future[int]] = []

    async def append(self, record: Record) -> int:
        self.records.append(record)
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]

    async def release(self) -> None:
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_result(0)
        await settle()


def group_of(progress: QueueProgress, held: Held, feed: Feed | None = None) -> QueueGroup:
    async def never(*_: object) -> None:
        raise AssertionError("nothing is read or buried here")

    def on_lost(error: BaseException) -> None:
        pass

    clock = ManualClock()
    feed = feed or Feed("g", never, never)  # type: ignore[arg-type]
    return QueueGroup(
        "t",
        "g",
        progress,
        clock=clock,
        append=held.append,
        source=cast(GroupSource, None),
        feed=feed,
        bury=never,
        publish_again=never,
        on_lost=on_lost,
        secret=b"secret",
    )


def handed_out() -> QueueProgress:
    """Three messages, of which the coordinator before had handed out some, as it wrote down."""
    progress = QueueProgress("g", GroupSettings(), {0: 0})
    progress.apply(Progress(at=1, reached=[Reached(0, 0, 3)]))
    return progress


async def test_what_was_decided_before_is_stored_before_the_leases() -> None:
    """Else the next coordinator would take those messages for ready, under the delivery that was acked."""
    held = Held()
    group = group_of(handed_out(), held)
    first = asyncio.create_task(group.ack([ToDecide(FIRST, 0, 1)]))
    await settle()
    second = asyncio.create_task(group.ack([ToDecide(SECOND, 1, 2)]))
    await settle()
    assert len(held.records) == 1  # the second is decided, and waits for the first record
    over = asyncio.create_task(group.hand_over())
    await settle()
    for _ in range(4):
        await held.release()
    await asyncio.gather(first, second, over)
    *before, last = held.records
    assert isinstance(last, Leases) and [each.ranges for each in last.leases] == [[(2, 3)]]
    assert [tuple(a) for each in before if isinstance(each, Progress) for a in each.acked] == [
        (0, 0, 1, 1),
        (0, 1, 2, 1),
    ]
    with pytest.raises(SegmentMoved):
        await group.ack([ToDecide(FIRST, 0, 1)])
    await group.close()


MANY = 3 * AT_ONCE


def all_handed_out() -> QueueProgress:
    progress = QueueProgress("g", GroupSettings(), {0: 0})
    progress.apply(Progress(at=1, reached=[Reached(0, 0, MANY)]))
    return progress


class Quiet(Feed):
    """No message comes."""

    def __init__(self) -> None:
        super().__init__("g", None, None)  # type: ignore[arg-type]

    async def look(self, claims: object, rows: int, wall_ms: int) -> bool:
        await asyncio.Event().wait()
        return False


def acked_by(held: Held) -> list[int]:
    """How many messages each record acks."""
    return [sum(each.stop - each.start for each in record.acked) for record in held.records if hasattr(record, "acked")]


async def ack_each(group: QueueGroup, count: int, turn: Turn) -> list[list[Outcome]]:
    """Ack that many messages, each by a claim of its own."""
    return await group.ack([ToDecide(Claim(0, n, 1), n, n + 1) for n in range(count)], turn)


async def released(held: Held, acking: "asyncio.Task[list[list[Outcome]]]") -> list[list[Outcome]]:
    """What became of the messages, once its records are acknowledged."""
    for _ in range(200):
        await settle()
        await held.release()
        if acking.done():
            break
    return acking.result()


async def test_what_is_decided_in_many_turns_is_one_record() -> None:
    held = Held()
    group = group_of(all_handed_out(), held, Quiet())

    acking = asyncio.create_task(ack_each(group, MANY, settle))
    outcomes = await released(held, acking)
    assert acked_by(held) == [MANY] and len(outcomes) == MANY
    assert {each.verdict for of_part in outcomes for each in of_part} == {Verdict.ACCEPTED}
    await group.close()


async def test_turns_whose_decisions_another_record_has_taken_are_answered_too() -> None:
    held = Held()
    group = group_of(all_handed_out(), held, Quiet())
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            # Another consumer acks. Its record takes the decisions of the first turn, too.
            other = asyncio.create_task(group.ack([ToDecide(Claim(0, MANY - 1, 1), MANY - 1, MANY)]))
            await released(held, other)

    acking = asyncio.create_task(ack_each(group, MANY - 1, turn))
    assert len(await released(held, acking)) == MANY - 1
    assert acked_by(held) == [AT_ONCE + 1, MANY - 1 - AT_ONCE]
    await group.close()


async def test_a_group_that_is_lost_between_two_turns_answers_nobody() -> None:
    held = Held()
    group = group_of(all_handed_out(), held, Quiet())
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            await group.close()

    with pytest.raises(SegmentMoved):
        await ack_each(group, MANY, turn)
    assert acked_by(held) == []


async def test_why_keys_cannot_be_learned_is_told() -> None:
    class Damaged(Feed):
        async def learn(self, claims: object) -> None:
            raise CorruptFile("topics/t/segments/segment=0/0.parquet is damaged")

    progress = QueueProgress("g", GroupSettings(order="key"), {0: 0})
    progress.apply(Progress(at=1, reached=[Reached(0, 0, 3)]))
    group = group_of(progress, Held(), Damaged("g", None, None))  # type: ignore[arg-type]
    with pytest.raises(CorruptFile, match="is damaged"):
        await group.claim(1, lease_ms=1000, wait_seconds=5)
    await group.close()
