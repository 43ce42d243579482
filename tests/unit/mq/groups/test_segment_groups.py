"""Checkpoints beside what else is stored: nothing that they stand in for may be missing in them."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from filer.clock import ManualClock, settle
from groups.fold import GroupFold
from groups.queue.progress import QueueProgress
from groups.records import CHECKPOINT_KEY, Checkpoint, Created, Record, from_json, key_of, to_json
from groups.settings import default_settings
from mq.groups import group_log
from mq.groups.group_records import Append
from mq.groups.message_feed import Feed
from mq.groups.queue_group import QueueGroup
from mq.groups.segment_groups import SegmentGroups


class Log:
    """Gives offsets at once, and acknowledges records of `held` keys when that is over."""

    segment, stored_end, pending_bytes = 0, 0, 0

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes]] = []
        self.held: set[str] = set()
        self.released = asyncio.Event()

    async def append(self, key: str, record: Record, *, replicated: bool) -> int:
        offset = len(self.records)
        self.records.append((key, to_json(record)))
        if key in self.held:
            await self.released.wait()
        return offset

    async def replay(self) -> GroupFold:
        return GroupFold()

    def missing(self) -> list[tuple[int, str]]:
        """Each group that was created before a checkpoint and is not in what that stands for, with its offset."""
        read = [(key, from_json(value)) for key, value in self.records]
        found: list[tuple[int, str]] = []
        for offset, (_, record) in enumerate(read):
            if isinstance(record, Checkpoint):
                fold = GroupFold()
                for each, of_group in read[record.positions[0][1] : offset]:
                    fold.add(each, of_group)
                before = {key for key, each in read[:offset] if isinstance(each, Created)}
                found += [(offset, key) for key in before - fold.groups.keys()]
        return found


def make_group(
    clock: ManualClock,
    topic: str,
    name: str,
    progress: QueueProgress,
    *,
    append: Append,
    on_lost: Callable[[BaseException], None],
) -> QueueGroup:
    async def never(*_: object) -> None:
        raise AssertionError("nothing is read or buried here")

    return QueueGroup(
        topic,
        name,
        progress,
        clock=clock,
        append=append,
        feed=Feed(name, never, never),  # type: ignore[arg-type]
        bury=never,
        publish_again=never,
        on_lost=on_lost,
        secret=b"secret",
    )


async def test_a_group_that_is_created_meanwhile_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first record lies below the checkpoint, and was acknowledged after that had begun."""
    monkeypatch.setattr(group_log, "CHECKPOINT_RECORDS", 1)
    clock, log = ManualClock(), Log()
    groups = SegmentGroups(log, clock, partial(make_group, clock))  # type: ignore[arg-type]
    await groups.ready()

    async def earliest() -> dict[int, int]:
        return {0: 0}

    async def create(name: str) -> None:
        await groups.create("t", name, default_settings("t", "stored"), earliest)

    log.held.add(key_of("t", "b"))
    both = [asyncio.create_task(create(name)) for name in "ab"]
    await settle()
    assert [type(from_json(value)) for _, value in log.records[:2]] == [Created, Created]
    log.released.set()
    await asyncio.gather(*both)
    await settle()
    assert any(key == CHECKPOINT_KEY for key, _ in log.records) and log.missing() == []
    await groups.close()
