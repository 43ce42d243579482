"""Checkpoints beside what else is stored: nothing that they stand in for may be missing in them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import pytest

from filer.clock import ManualClock, settle
from filer.errors import SegmentMoved
from groups.fold import GroupFold, GroupProgress
from groups.incarnations import Origin
from groups.queue.progress import QueueProgress
from groups.records import (
    CHECKPOINT_KEY,
    Checkpoint,
    Created,
    Deleted,
    Gone,
    Joined,
    Membership,
    Record,
    from_json,
    key_of,
    to_json,
)
from groups.settings import GroupSettings, default_settings
from groups.stream.progress import StreamProgress
from mq.base.errors import Conflict
from mq.groups import group_log, group_room, segment_groups
from mq.groups.group_records import Append
from mq.groups.group_room import GO_AT_ONCE, MOST_OF_MAKER, Maker
from mq.groups.group_source import Beginning, GroupSource
from mq.groups.message_feed import Feed
from mq.groups.queue_group import QueueGroup
from mq.groups.segment_groups import SegmentGroups
from mq.groups.stream_group import StreamGroup


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
        source=cast(GroupSource, None),
        feed=Feed(name, never, never),  # type: ignore[arg-type]
        bury=never,
        publish_again=never,
        on_lost=on_lost,
        secret=b"secret",
    )


async def earliest() -> Beginning:
    return Beginning(None, {0: 0})


async def test_a_group_that_is_created_meanwhile_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first record lies below the checkpoint, and was acknowledged after that had begun."""
    monkeypatch.setattr(group_log, "CHECKPOINT_RECORDS", 1)
    clock, log = ManualClock(), Log()
    groups = SegmentGroups(log, clock, partial(make_group, clock))  # type: ignore[arg-type]
    await groups.ready()

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


@pytest.mark.parametrize(("idle_seconds", "claims", "refusals"), [(0, 10_000, 8_000), (600, 2_500, 1)])
async def test_one_principal_that_makes_ten_thousand_groups_is_no_others_business(
    monkeypatch: pytest.MonkeyPatch, idle_seconds: float, claims: int, refusals: int
) -> None:
    """By claims, each from another name. What nobody asks for any more makes room for more of its own."""
    counted: list[int] = []
    looks: list[int] = []

    def look(known: Mapping[str, GroupProgress], *, of: tuple[str, str] | None = None) -> list[str]:
        looks.append(len(known))
        return group_room.to_go(known, of=of)

    def count_all(groups: Iterable[tuple[str, GroupProgress]]) -> Counter[tuple[str, str]]:
        known = list(groups)
        counted.append(len(known))
        return group_room.count_of_makers(known)

    monkeypatch.setattr(segment_groups, "count_of_makers", count_all)
    monkeypatch.setattr(segment_groups, "to_go", look)
    monkeypatch.setattr(group_log, "CHECKPOINT_RECORDS", 10**6)
    clock, log = ManualClock(), Log()
    groups = SegmentGroups(log, clock, partial(make_group, clock))  # type: ignore[arg-type]
    await groups.ready()
    settings, refused = default_settings("t", "stored"), 0
    for number in range(claims):
        try:
            await groups.create("t", f"made-{number}", settings, earliest, Maker(Origin("eve", by_claim=True)))
        except Conflict:
            refused += 1
            if idle_seconds:
                await clock.advance(idle_seconds)
    assert len(groups.known()) <= MOST_OF_MAKER
    assert refused == refusals
    assert len(looks) <= 1 + refusals * bool(idle_seconds) + (claims - MOST_OF_MAKER) // GO_AT_ONCE * bool(idle_seconds)
    await groups.create("t", "ann", settings, earliest, Maker(Origin("ann", by_claim=True)))
    assert len(counted) == 1, "a claim takes no longer where there are many groups"
    await groups.close()


class MeasuredLog(Log):
    """Has groups from before, and takes some turns to store each record; the most that was on its way is known."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.pending_bytes = self.most_pending_bytes = 0
        self._count = groups

    async def append(self, key: str, record: Record, *, replicated: bool) -> int:
        offset = await super().append(key, record, replicated=replicated)
        size_bytes = len(self.records[offset][1])
        self.pending_bytes += size_bytes
        self.most_pending_bytes = max(self.most_pending_bytes, self.pending_bytes)
        await settle(40)
        self.pending_bytes -= size_bytes
        return offset

    async def replay(self) -> GroupFold:
        fold = GroupFold()
        settings = default_settings("t", "stored").in_force()
        for number in range(self._count):
            created = Created(at=0, id=f"{number}", settings=settings, positions=[(0, 0)])
            fold.add(key_of("t", f"g{number}"), created)
        # So many segments had to be read that everything is written down at once.
        fold.segments = group_log.CHECKPOINT_SEGMENTS + 1
        return fold


@pytest.mark.parametrize("is_bounded", [True, False], ids=["bounded", "without the bound"])
async def test_so_much_of_a_checkpoint_is_on_its_way_at_once(monkeypatch: pytest.MonkeyPatch, is_bounded: bool) -> None:
    full_bytes, at_once = 2_000, 4
    monkeypatch.setattr(segment_groups, "FULL_BYTES", full_bytes if is_bounded else 10**9)
    monkeypatch.setattr(segment_groups, "AT_ONCE", at_once)
    clock, log = ManualClock(), MeasuredLog(100)
    groups = SegmentGroups(cast(Any, log), clock, partial(make_group, clock))
    await groups.ready()
    while CHECKPOINT_KEY not in {key for key, _ in log.records}:
        await settle()
    assert len(log.records) == 101 and len({key for key, _ in log.records}) == 101
    assert from_json(log.records[-1][1]) == Checkpoint(at=clock.now_us() // 1000, positions=[(0, 0)])
    one_bytes = max(len(value) for _, value in log.records)
    assert (log.most_pending_bytes < full_bytes + at_once * one_bytes) == is_bounded
    await groups.close()


class Name:
    """The source of a group, whose topic's name means something else for a while."""

    def __init__(self) -> None:
        self.means_something_else = True

    async def is_over(self) -> bool:
        return self.means_something_else


@pytest.mark.parametrize("comes_back", [True, False], ids=["comes back", "stays away"])
async def test_a_group_whose_name_comes_back_while_a_record_is_on_its_way_is_not_ended(comes_back: bool) -> None:
    """What was acked since, under that name, was answered. Whoever found the group over before would forget it."""
    clock, log, name = ManualClock(), Log(), Name()
    groups = SegmentGroups(cast(Any, log), clock, partial(make_group, clock))
    await groups.ready()

    settings = default_settings("t", "stored")
    group, _ = await groups.create("t", "g", settings, earliest)
    group.source = cast(GroupSource, name)
    log.held.add(key_of("t", "g"))
    stored = asyncio.create_task(group.configure(settings))
    await settle()
    ended = asyncio.create_task(groups.end(group))
    await settle()
    name.means_something_else = not comes_back
    log.released.set()
    await asyncio.gather(stored, ended)
    assert (groups.find("t", "g") is group) == comes_back
    assert (Deleted in [type(from_json(value)) for _, value in log.records]) != comes_back
    await groups.close()


class SlowLog(Log):
    """Is read again only when that may be over."""

    def __init__(self) -> None:
        super().__init__()
        self.replayed = asyncio.Event()
        self.replayed.set()

    async def replay(self) -> GroupFold:
        await self.replayed.wait()
        fold = GroupFold()
        for key, value in self.records:
            fold.add(key, from_json(value))
        return fold


async def test_while_the_log_is_read_again_nobody_is_told_that_there_is_no_group() -> None:
    """Whoever was let in before that, and took the group for missing, would make it anew from its first message on."""
    clock, log = ManualClock(), SlowLog()
    groups = SegmentGroups(cast(Any, log), clock, partial(make_group, clock))
    await groups.ready()

    settings = default_settings("t", "stored")
    group, _ = await groups.create("t", "g", settings, earliest)
    stored = len(log.records)
    log.replayed.clear()
    group._records.lose(SegmentMoved("a record was not stored"))
    again = asyncio.create_task(groups.ready())
    await settle()
    with pytest.raises(SegmentMoved):
        groups.find("t", "g")
    with pytest.raises(SegmentMoved):
        await groups.create("t", "g", settings, earliest)
    assert len(log.records) == stored
    log.replayed.set()
    await again
    assert groups.find("t", "g") is not None
    await groups.close()
    with pytest.raises(SegmentMoved):
        groups.find("t", "g")


def make_stream_group(
    clock: ManualClock,
    topic: str,
    name: str,
    progress: StreamProgress,
    *,
    append: Append,
    on_lost: Callable[[BaseException], None],
) -> StreamGroup:
    async def never(*_: object) -> Any:
        raise AssertionError("nobody is given a segment here")

    return StreamGroup(
        topic, name, progress, clock=clock, append=append, source=cast(GroupSource, None), rates=never, on_lost=on_lost
    )


async def test_a_group_that_shows_how_far_a_query_is_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark moves it with each micro-batch. Where somebody has read with it, a reset is news each time."""
    caplog.set_level("INFO")
    clock, log = ManualClock(), Log()
    groups = SegmentGroups(cast(Any, log), clock, cast(Any, partial(make_stream_group, clock)))
    await groups.ready()
    place = {0: 0}

    async def positions() -> dict[int, int]:
        return place

    async def begin() -> Beginning:
        return Beginning(None, await positions())

    await groups.create("t", "g", GroupSettings(mode="stream"), begin)
    for offset in range(3):
        place = {0: offset}
        group = await groups.reset("t", "g", positions, force=False)
    assert group.progress.positions() == {0: 2}
    assert caplog.text.count("group_reset") == 1
    assert isinstance(group, StreamGroup)
    group.progress.apply(Membership(at=0, joined=[Joined("a", 1)], gone=[Gone("a", 1)]))
    for _ in range(2):
        await groups.reset("t", "g", positions, force=False)
    assert caplog.text.count("group_reset") == 3
    await groups.close()
