"""A stream group stopped at its records: nothing is told before it is stored, and what is stored is told again."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from filer.clock import ManualClock, settle
from filer.errors import InvalidInput, SegmentMoved
from filer.slots import SLOTS
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from groups.fold import GroupFold
from groups.records import Created, Membership, Record
from groups.settings import GroupSettings
from groups.stream.members import Hold, Told
from groups.stream.progress import StreamProgress
from mq.base.errors import Conflict
from mq.groups.group_source import GroupSource
from mq.groups.stream_group import Commit, StreamGroup
from mq.topic.topic_runtime import TopicRuntime

SETTINGS = GroupSettings(mode="stream", session_seconds=10)
END = 100


class Topic:
    """A topic of so many segments with 100 messages each; `ends` overrules that."""

    def __init__(self, segments: int = 2) -> None:
        width = SLOTS // segments
        made = [
            Segment(id=n, start_slot=n * width, stop_slot=(n + 1) * width, brokers=("b",), opened_us=0, reason="create")
            for n in range(segments)
        ]
        self.state = TopicState(
            topic="t",
            created_us=0,
            version=1,
            next_segment=segments,
            config=TopicConfig(),
            segments=tuple(made),
        )
        self.reads = self

    async def end_of(self, segment: int, *, at_least: int) -> int:
        return END


class Log:
    """The records of a group, in their order. While `holds`, none is acknowledged; `sealed` refuses them."""

    def __init__(self) -> None:
        self.records: list[Record] = [Created(at=0, id="g", settings=SETTINGS.in_force(), positions=[(0, 0), (1, 0)])]
        self.holds = self.sealed = False
        self.released = asyncio.Event()

    async def append(self, record: Record) -> int:
        if self.sealed:
            raise SegmentMoved("sealed")
        self.records.append(record)
        if self.holds:
            await self.released.wait()
            if self.sealed:
                raise SegmentMoved("sealed")
        return len(self.records)

    def added_up(self, upto: int | None = None) -> StreamProgress:
        fold = GroupFold()
        for record in self.records[:upto]:
            fold.add("t/g", record)
        progress = fold.groups["t/g"]
        assert isinstance(progress, StreamProgress)
        return progress


class Scene:
    """Coordinators of one group, one after the other."""

    def __init__(self) -> None:
        self.clock, self.log, self.topic = ManualClock(), Log(), Topic()
        self.lost: list[BaseException] = []
        self.groups: list[StreamGroup] = []
        self.rates: dict[int, float] = {}

    async def runtime(self) -> TopicRuntime:
        return cast(TopicRuntime, self.topic)

    def coordinator(self, upto: int | None = None) -> StreamGroup:
        async def rates(_: TopicRuntime) -> dict[int, float]:
            return self.rates

        group = StreamGroup(
            "t",
            "g",
            self.log.added_up(upto),
            clock=self.clock,
            append=self.log.append,
            source=cast(GroupSource, self),
            rates=rates,
            on_lost=self.lost.append,
        )
        self.groups.append(group)
        return group

    async def close(self) -> None:
        for group in self.groups:
            await group.close()


@pytest.fixture
async def scene() -> Any:
    scene = Scene()
    yield scene
    await scene.close()


async def beat(group: StreamGroup, start: int, *released: tuple[int, int], name: str = "a", **more: Any) -> Told:
    wanted = {"holds": [], "wait_seconds": 0.0, **more}
    return await group.hear(name, start, released=released, **wanted)


async def test_nothing_is_told_before_it_is_stored(scene: Scene) -> None:
    group = scene.coordinator()
    scene.log.holds = True
    joining = asyncio.create_task(group.join("a"))
    await settle()
    assert len(scene.log.records) == 2 and not joining.done()
    scene.log.holds = False
    scene.log.released.set()
    start, told = await joining
    assert (start, told) == (1, Told([Hold(0, 1, 0), Hold(1, 1, 0)], []))
    scene.log.holds, scene.log.released = True, asyncio.Event()
    committing = asyncio.create_task(group.commit("a", [Commit(0, 1, 7)]))
    await settle()
    # A second commit of the segment waits for what becomes of the first; a heartbeat does not.
    second = asyncio.create_task(group.commit("a", [Commit(0, 1, 9)]))
    assert (await beat(group, 1)).holds[0] == Hold(0, 1, 0) and not committing.done()
    scene.log.holds = False
    scene.log.released.set()
    assert await committing == [7] and await second == [9]
    assert scene.log.added_up().positions() == {0: 9, 1: 0}


@pytest.mark.parametrize("lands", [True, False])
async def test_a_commit_whose_answer_is_lost_is_repeated_at_the_next_coordinator(scene: Scene, lands: bool) -> None:
    group = scene.coordinator()
    await group.join("a")
    scene.log.holds = True
    committing = asyncio.create_task(group.commit("a", [Commit(0, 1, 7)]))
    await settle()
    # It is killed here: the record has landed, or it has not.
    scene.log.sealed = True
    scene.log.released.set()
    with pytest.raises(SegmentMoved):
        await committing
    assert len(scene.lost) == 1
    if not lands:
        scene.log.records.pop()
    scene.log.holds = scene.log.sealed = False
    following = scene.coordinator()
    assert following.progress.positions()[0] == (7 if lands else 0)
    count = len(scene.log.records)
    assert await following.commit("a", [Commit(0, 1, 7)]) == [7]
    assert following.progress.positions()[0] == 7 and len(scene.log.records) == count + (0 if lands else 1)


async def test_a_member_goes_on_at_the_next_coordinator_and_has_a_whole_session(scene: Scene) -> None:
    first = scene.coordinator()
    await first.join("a")
    await scene.clock.advance(9)
    await first.hand_over()
    with pytest.raises(SegmentMoved):
        await beat(first, 1)
    following = scene.coordinator()
    following.run()
    await scene.clock.advance(9)
    assert len((await beat(following, 1)).holds) == 2
    await scene.clock.advance(11)
    with pytest.raises(Conflict, match="not heard of for a session"):
        await beat(following, 1)


async def test_a_handover_stores_what_was_decided(scene: Scene) -> None:
    group = scene.coordinator()
    await group.join("a")
    scene.log.holds = True
    first = asyncio.create_task(group.commit("a", [Commit(0, 1, 7)]))
    await settle()
    second = asyncio.create_task(group.commit("a", [Commit(1, 1, 8)]))
    await settle()
    over = asyncio.create_task(group.hand_over())
    await settle()
    scene.log.holds = False
    scene.log.released.set()
    assert await first == [7] and await second == [8]
    await over
    assert scene.log.added_up().positions() == {0: 7, 1: 8}


async def test_what_a_zombie_has_not_heard_of_it_does_not_refuse(scene: Scene) -> None:
    zombie = scene.coordinator()
    following = scene.coordinator()
    await following.join("a")
    count = len(scene.log.records)
    # Nobody else coordinates: there is no such epoch. That is known by a record that says nothing.
    assert await following.commit("a", [Commit(0, 9, 7)]) == [None]
    assert scene.log.records[count:] == [Membership(at=0)] or isinstance(scene.log.records[count], Membership)
    scene.log.sealed = True
    with pytest.raises(SegmentMoved):
        await zombie.commit("a", [Commit(0, 1, 7)])
    with pytest.raises(SegmentMoved):
        await scene.coordinator(1).hear("a", 1, released=[], holds=[], wait_seconds=0)


async def test_a_heartbeat_that_waits_is_answered_at_once_when_something_has_changed(scene: Scene) -> None:
    group = scene.coordinator()
    (a, told), (b, _) = await group.join("a"), await group.join("b")
    told = await beat(group, a)
    (moving,) = told.release
    waiting = asyncio.create_task(beat(group, b, name="b", wait_seconds=5.0))
    await settle()
    assert not waiting.done()
    await beat(group, a, moving)
    assert [hold.segment for hold in (await waiting).holds] == [moving[0]]
    # And after the time in any case, with what it holds.
    holds = [(moving[0], 2)]
    idle = asyncio.create_task(beat(group, b, name="b", holds=holds, wait_seconds=5.0))
    await settle()
    await scene.clock.advance(5)
    assert [hold[:2] for hold in (await idle).holds] == holds


async def test_segments_with_commits_on_their_way_count_for_their_holder(scene: Scene) -> None:
    """Else whoever commits all the time would seem to have nothing, and get what others have."""
    scene.topic = Topic(4)
    scene.log.records[0] = Created(
        at=0, id="g", settings=SETTINGS.in_force(), positions=[(segment, 0) for segment in range(4)]
    )
    group = scene.coordinator()
    starts = {name: (await group.join(name)).epoch for name in "ab"}
    await beat(group, starts["a"], *(await beat(group, starts["a"])).release)
    holds = (await beat(group, starts["b"], name="b", wait_seconds=1.0)).holds
    (mine, _) = (await beat(group, starts["a"])).holds
    scene.log.holds = True
    storing = asyncio.create_task(group.commit("a", [Commit(mine.segment, mine.epoch, 1)]))
    await settle()
    waiting = asyncio.create_task(group.commit("b", [Commit(*each[:2], 1) for each in holds]))
    scene.rates = dict.fromkeys(range(4), 1.0)  # it has to look at who has what
    await scene.clock.advance(9)
    for name, start in starts.items():
        await beat(group, start, name=name)
    await scene.clock.advance(2)
    scene.log.holds = False
    scene.log.released.set()
    assert await storing == [1] and await waiting == [1, 1]
    for name, start in starts.items():
        told = await beat(group, start, name=name)
        assert len(told.holds) == 2 and not told.release


@pytest.mark.parametrize("commits", [[Commit(0, 1, END + 1)], [Commit(1, 1, 5), Commit(0, 1, END + 1)]])
async def test_a_position_beyond_the_end_is_refused_whole(scene: Scene, commits: Sequence[Commit]) -> None:
    group = scene.coordinator()
    await group.join("a")
    with pytest.raises(InvalidInput, match="beyond the end of segment 0, 100 now"):
        await group.commit("a", commits)
    assert group.progress.positions() == {0: 0, 1: 0}
