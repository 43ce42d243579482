"""A stream group at its coordinator: its members, the segments of each, and commits that are stored."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from filer.clock import Clock
from filer.errors import BraidError, InvalidInput, Remedy
from filer.event_log import EventLog
from filer.topic.positions import Positions
from filer.topic.topic_state import Segment
from groups.incarnations import next_id
from groups.records import Configured, Membership, Reset, Snapshot
from groups.settings import GroupSettings
from groups.stream.members import StreamMembers, Told, Verdict
from groups.stream.progress import StreamProgress
from mq.base.errors import Conflict, NotFound
from mq.groups.group_records import Append, GroupRecords
from mq.groups.group_room import holds_nothing
from mq.groups.group_source import GroupSource
from mq.groups.lag import LagMemory
from mq.groups.removed_segments import removed_segments
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.wakeup import Wakeup

MOST_MEMBERS = 1_000
"""What a group keeps about its members is bounded. More members would not help: segments are fewer."""
LOOK_SECONDS = 1.0
"""While there are members, the group checks this often whether segments were sealed or removed."""
RATES_SECONDS = 10.0
"""Traffic changes slowly, and moving a segment stops it."""

_log = EventLog(__name__)


class Commit(NamedTuple):
    """The member with a segment under that epoch is done with everything below `position`."""

    segment: int
    epoch: int
    position: int


class Start(NamedTuple):
    """A start of a member, by its number, and the segments that it has."""

    epoch: int
    told: Told


class StreamGroup:
    """One stream group. All methods belong to the event loop's thread.

    `append` stores records. `source` finds the running topic, `rates` returns the traffic of its segments. `on_lost` is
    called once, with the reason, if records do not count any more: then this broker is not the coordinator, and its
    state is worth nothing.
    """

    def __init__(
        self,
        topic: str,
        name: str,
        progress: StreamProgress,
        *,
        clock: Clock,
        append: Append,
        source: GroupSource,
        rates: Callable[[TopicRuntime], Awaitable[Mapping[int, float]]],
        on_lost: Callable[[BaseException], None],
    ) -> None:
        self.topic, self.name = topic, name
        self.source = source
        self.lag_memory = LagMemory()
        self._clock, self._rates_of = clock, rates
        self._members = StreamMembers(progress, now_ms=self._now_ms())
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._hands_over = False
        self._records = GroupRecords(topic, name, append=append, on_lost=on_lost, on_end=self._tell_those_who_wait)
        # Rounds are numbered: the last that has begun, and the last that is over.
        self._begun = self._finished = 0
        self._round_over, self._assigned = Wakeup(), Wakeup()
        self._planned_version, self._cannot_plan = -1, False
        self._rates: Mapping[int, float] = {}
        self._rates_seconds: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._lives: dict[int, Segment | None] = {}

    @property
    def progress(self) -> StreamProgress:
        """The state that follows from the records."""
        return self._members.progress

    def positions(self) -> dict[int, int]:
        """Return the first offset that is not done, by segment."""
        return self.progress.positions()

    def left_ms(self, member: str) -> int:
        """How long the member's session runs, unless it sends a heartbeat meanwhile."""
        return self._members.left_ms(member, self._now_ms())

    # -- what members ask ------------------------------------------------------------------------------------

    async def join(self, member: str, process: str = "") -> Start:
        """Let a member start, or start again, once that is stored; returns its start with its segments then.

        Stopped before that is stored, nothing has changed. Stopped after it, the member does not know its start, and
        joins again: its former segments are free then. Raises `Conflict` if there are too many members.
        """
        while True:
            self._check()
            if self._members.count >= MOST_MEMBERS and member not in self.progress.members:
                raise Conflict(
                    "too-many-members",
                    f"group {self.name!r} has {MOST_MEMBERS} members, which is the most there may be; one that leaves, "
                    "or is not heard of for a session, makes room",
                )
            start = self._members.join(member, self._now_ms(), process)
            await self._stored()
            if start is not None:
                break
        await self._next_round()
        return Start(start, self._members.told(member, start))

    async def hear(
        self,
        member: str,
        start: int,
        *,
        released: Collection[tuple[int, int]],
        holds: Collection[tuple[int, int]],
        wait_seconds: float,
        process: str = "",
    ) -> Told:
        """Accept a heartbeat, with the segments that the member has let go and those that it holds, by epoch.

        Answers when the member has other segments than it holds, or is to let one go; after `wait_seconds` in any case.
        Raises `Conflict` if that start of the member is over: `member-replaced` if another process has joined under its
        name.
        """
        until_seconds = self._clock.monotonic_seconds() + wait_seconds
        told = await self._hear(member, start, released, process)
        while not told.release and {hold[:2] for hold in told.holds} == set(holds):
            left_seconds = until_seconds - self._clock.monotonic_seconds()
            if left_seconds <= 0:
                break
            await self._wait_for(self._assigned.next(), left_seconds)
            told = await self._hear(member, start, (), process)
        return told

    async def _hear(self, member: str, start: int, released: Iterable[tuple[int, int]], process: str) -> Told:
        named = list(released)
        while True:
            self._check()
            verdict = self._members.hear(member, start, named, self._now_ms(), process)
            if verdict is Verdict.ACCEPTED:
                self._ask()
                return self._members.told(member, start)
            if self._members.is_replaced(member, start, process):
                raise Conflict(
                    "member-replaced",
                    f"another process has joined as member {member!r}, and this one has its segments no more: "
                    "give each process a member_id of its own",
                )
            if verdict is not Verdict.WAIT:
                raise await self._fenced(verdict, self._why_over(member, start))
            await self._stored()

    async def leave(self, member: str, start: int | None) -> None:
        """End the member, which has nothing any more, once that is stored; without `start`, whichever start it is.

        Stopped before that is stored, it has its segments until its session ends.

        Raises `NotFound` if there is no such member, `Conflict` if that start of it is over.
        """
        while True:
            self._check()
            known = self.progress.members.get(member) if start is None else start
            if known is None:
                raise NotFound("member", f"group {self.name!r} of topic {self.topic!r} has no member {member!r}")
            verdict = self._members.leave(member, known)
            if verdict is Verdict.ACCEPTED:
                return
            if verdict is Verdict.NEWER:
                raise await self._fenced(verdict, self._why_over(member, known))
            await self._stored()
            if verdict is Verdict.LATER:
                return

    async def commit(self, member: str, commits: Sequence[Commit]) -> list[int | None]:
        """Commit positions that the member is done with: returns for each the one in force, once that is stored.

        That is a later one if it was committed before: positions never go back. None for a commit that does not count,
        because another member has the segment by now: it moves nothing. Stopped before the record is stored, no
        position has moved and no caller was answered; stopped after it, a repeat is answered as the first time. Raises
        `InvalidInput` for a position that no message of the segment lies before.
        """
        drains = await self._check_positions(commits)
        accepted: list[int | None] = [None for _ in commits]
        waiting = list(enumerate(commits))
        while waiting:
            self._check()
            again, must_store = list[tuple[int, Commit]](), False
            for index, each in waiting:
                verdict = self._members.commit(member, each.segment, each.epoch, each.position)
                if verdict is Verdict.WAIT:
                    again.append((index, each))
                elif verdict is Verdict.NEWER:
                    await self._prove()
                else:
                    must_store |= verdict is Verdict.LATER
                    accepted[index] = None if verdict is Verdict.FENCED else each.position
            waiting = again
            if must_store or waiting:
                await self._stored()
        if drains:
            self._members.must_plan = True
            self._ask()
        return [
            None if position is None else max(position, self.progress.position_of(each.segment))
            for each, position in zip(commits, accepted, strict=True)
        ]

    async def _check_positions(self, commits: Sequence[Commit]) -> bool:
        """Whether one of them is the end of a sealed segment, so that the group goes on behind it.

        Raises `InvalidInput` for one beyond the end: it would skip messages that are still to come.
        """
        runtime, drains = await self.source.runtime(), False
        for segment_id, _, position in commits:
            segment = runtime.state.segment(segment_id)
            if segment is None or segment_id not in self.progress.segments:
                continue  # the group has not come to it, or has left it: nothing moves
            end = segment.end_offset
            drains |= position == end
            if end is None:
                end = await runtime.reads.end_of(segment_id, at_least=position)
            if position > end:
                raise InvalidInput(f"position {position} is beyond the end of segment {segment_id}, {end} now")
        return drains

    async def _fenced(self, verdict: Verdict, reason: str) -> Conflict:
        if verdict is Verdict.NEWER:
            await self._prove()
        return Conflict("member-fenced", reason)

    def _why_over(self, member: str, start: int) -> str:
        """Why a start of a member is over. Members that have left, or whose session has ended, are not remembered."""
        last = self.progress.members.get(member)
        if last is None:
            return (
                f"{member!r} is no member of group {self.name!r}: it has not joined, has left, or was not heard of for "
                "a session; join first"
            )
        if start > last:
            return f"member {member!r} has no start {start}: its last one is {last}; join again"
        return f"start {start} of member {member!r} is over: it has joined again since, as start {last}; join again"

    async def _prove(self) -> None:
        """Store an empty record: if it is stored, no other broker coordinates the group, and none knows more.

        Raises `SegmentMoved` if it is not.
        """
        async with self._records.at_rest():
            await self._records.store(Membership(at=self._wall_ms()))

    # -- what coordinators do with groups --------------------------------------------------------------------

    async def configure(self, settings: GroupSettings) -> None:
        """Apply other settings from now on, once they are stored."""
        self._check()
        async with self._records.at_rest():
            await self._records.store(Configured(at=self._wall_ms(), settings=settings.in_force()))
            self.progress.configure(settings)
        self._ask()

    async def write_snapshot(self) -> int:
        """Store a snapshot of everything in the records; returns the offset of that record."""
        async with self._records.at_rest():
            return await self._records.store(Snapshot(at=self._wall_ms(), state=self.progress.to_plain()))

    async def delete(self) -> None:
        """End the group for ever, once that is stored."""
        await self._records.delete(self._wall_ms())

    async def end(self) -> bool:
        """End the group for ever if it is over, once that is stored; returns whether it was.

        Its topic's name may have come back to its former meaning while a record of the group was on its way. The
        answers by that record were given under a name that this broker knows, so it looks again once the group is at
        rest.
        """
        return await self._records.delete(self._wall_ms(), only_if=self.source.is_over)

    @property
    def is_unasked(self) -> bool:
        """Whether no caller is asking for it."""
        return self._running is None

    async def make_room(self) -> bool:
        """End the group for ever if it holds nothing, once that is stored; returns whether it did.

        A caller that asks for it meanwhile creates another one. That begins where this one did: no message is passed
        by.
        """

        async def holds_nothing_still() -> bool:
            return not self._members.has_news and holds_nothing(self.progress)

        return await self._records.delete(self._wall_ms(), only_if=holds_nothing_still, ask_again=True)

    async def reset(self, positions: Positions, *, force: bool) -> StreamProgress:
        """End this incarnation of the group, once that is stored; returns the beginning of the next, at `positions`.

        Without `force`, raises `Conflict` while there are members. Stopped before the record is stored, nothing has
        changed. Stopped after it, no commit from before counts: the new epochs are above all earlier ones.
        """
        self._check()
        async with self._records.at_rest():
            if self._members.has_news:
                await self._store_decided()
            if self.progress.members and not force:
                raise Conflict(
                    "group-active",
                    f"group {self.name!r} has {len(self.progress.members)} members: stop them, and wait until their "
                    "sessions have ended",
                    Remedy("force-members"),
                )
            # A call while the record is on its way would be answered by an incarnation that may be over.
            self._hands_over = True
            group_id = next_id(self.progress.id, self._clock.ulid())
            record = Reset(at=self._wall_ms(), id=group_id, positions=list(positions.items()))
            await self._records.store(record)
            self._records.end(self._records.moved())
            return self.progress.reset(record)

    async def hand_over(self) -> None:
        """Decide nothing more, and store decisions. The next coordinator gives each member a session from then on."""
        self._hands_over = True
        self._tell_those_who_wait()
        async with self._records.at_rest():
            if self._members.has_news:
                await self._store_decided()

    async def close(self) -> None:
        """End; waiting calls get the error that the coordinator has moved."""
        self._records.lose(self._records.moved())
        running = [task for task in (self._running, self._looking) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _tell_those_who_wait(self) -> None:
        self._round_over.wake()
        self._assigned.wake()
        self._wake.set()

    # -- the loop ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._records.check()
        if self._hands_over:
            raise self._records.moved()

    def _ask(self) -> None:
        """Run, since something has changed."""
        self._wake.set()
        self.run()

    async def _stored(self) -> None:
        """Wait until all decisions so far are stored."""
        self._ask()
        await asyncio.shield(self._records.news_stored(has_news=self._members.has_news))

    async def _next_round(self) -> None:
        """Wait until all decisions that follow from the stored records are made and stored too."""
        self._ask()
        wanted = self._begun + 1
        while self._finished < wanted:
            self._check()
            await asyncio.shield(self._round_over.next())

    def run(self) -> None:
        """End sessions and assign segments to members, until there are no members."""
        if self._running is None and self._records.lost is None:
            self._running = asyncio.create_task(self._run(), name=f"group {self.topic}/{self.name}")

    async def _run(self) -> None:
        try:
            while self._records.lost is None and not self._hands_over:
                self._wake.clear()
                await self._round()
                if not (self.progress.members or self._wake.is_set()):
                    return
                due_ms = self._members.next_event_ms()
                left_seconds = LOOK_SECONDS if due_ms is None else max(due_ms - self._now_ms(), 0) / 1000
                woken = asyncio.create_task(self._wake.wait())
                await self._wait_for(woken, min(left_seconds, LOOK_SECONDS))
                woken.cancel()
        except BraidError as error:
            self._records.lose(error)
        finally:
            self._running = None
            if self._wake.is_set() and self._records.lost is None and not self._hands_over:
                self.run()

    async def _round(self) -> None:
        """Decide what is due, and store the decisions."""
        self._begun += 1
        self._members.tick(self._now_ms())
        must_tell = await self._plan()
        async with self._records.at_rest():
            if self._members.has_news and not self._hands_over:
                await self._store_decided()
        if self._members.must_plan and not self._cannot_plan:
            self._wake.set()
        self._finished = self._begun
        self._round_over.wake()
        if must_tell:
            self._assigned.wake()

    async def _plan(self) -> bool:
        """Move the group on along its segments, and assign them to members; returns False if nothing has changed since.

        While the topic cannot be read, or is gone, commits and heartbeats go on.
        """
        try:
            runtime = await self.source.runtime()
            if any(segment >= runtime.state.next_segment for segment in self.progress.segments):
                await runtime.refresh()
                runtime = await self.source.runtime()
            lives = await removed_segments(runtime, self.progress.positions(), self._lives)
        except BraidError as error:
            if not self._cannot_plan:
                _log.warning("group_cannot_plan", topic=self.topic, group=self.name, error=error)
            self._cannot_plan = True
            return False
        self._cannot_plan = False
        self._look_at_traffic(runtime)
        state = runtime.state
        if not self._members.must_plan and state.version == self._planned_version:
            return False
        self._planned_version = state.version
        gone = [each for each in self.progress.segments if state.segment(each) is None and each < state.next_segment]
        if gone:
            self._tell_skipped(0, gone)
        self._members.plan(state, self._rates, lives)
        return True

    def _look_at_traffic(self, runtime: TopicRuntime) -> None:
        now_seconds = self._clock.monotonic_seconds()
        is_recent = self._rates_seconds is not None and now_seconds - self._rates_seconds < RATES_SECONDS
        if not is_recent and len(self.progress.members) > 1 and self._looking is None:
            self._rates_seconds = now_seconds
            self._looking = asyncio.create_task(self._look(runtime), name=f"traffic of group {self.name}")

    async def _look(self, runtime: TopicRuntime) -> None:
        try:
            with contextlib.suppress(BraidError):
                rates = await self._rates_of(runtime)
                if rates != self._rates:
                    self._rates, self._members.must_plan = rates, True
                    self._wake.set()
        finally:
            self._looking = None

    async def _store_decided(self) -> None:
        await self._records.store_news(self._take_news, self._members.stored)

    def _take_news(self) -> Membership:
        news = self._members.take_news(self._wall_ms())
        if lost := sum(each.stop - each.start for each in news.skipped):
            self._tell_skipped(lost, [])
        return news

    def _tell_skipped(self, messages: int, segments: Collection[int]) -> None:
        _log.warning("group_skipped", topic=self.topic, group=self.name, messages=messages, segments=list(segments))

    async def _wait_for(self, event: "asyncio.Future[Any]", seconds: float) -> None:
        """Wait until that happens, or that long."""
        timer = asyncio.create_task(self._clock.sleep(seconds))
        try:
            await asyncio.wait([event, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_seconds() * 1000)

    def _wall_ms(self) -> int:
        return self._clock.now_us() // 1000
