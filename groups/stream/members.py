"""The decisions of a stream group's coordinator: its members, which member has which segment, and which commits hold.

The protocol is that of `model/memberships.py` and docs/design.md §12. A decision becomes part of the next record. It
counts, and is reported, once the record is stored. Until then no other decision about the same segment or member is
made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from filer.topic.topic_state import Segment, TopicState
from groups.records import Committed, Given, Gone, Joined, Membership
from groups.stream.assignment import assign, weights_of
from groups.stream.frontier import advance_of
from groups.stream.progress import StreamProgress, StreamSegment


class Verdict(Enum):
    """The result of a heartbeat, of a commit, or of leaving."""

    ACCEPTED = "accepted"
    """It holds, and did so before."""
    FENCED = "fenced"
    """The member has started again or is gone; the segment was given away since."""
    LATER = "later"
    """It is part of the next record, and holds once that is stored."""
    WAIT = "wait"
    """A record about it is on its way: ask again when it is stored."""
    NEWER = "newer"
    """This coordinator does not know it. If it can still store a record, there is no such thing."""


class Hold(NamedTuple):
    """A segment that a member has under an epoch; everything below `position` is committed."""

    segment: int
    epoch: int
    position: int


class Told(NamedTuple):
    """The segments that a member has, and those that it must commit and then name as released, as (segment, epoch)."""

    holds: list[Hold]
    release: list[tuple[int, int]]


class StreamMembers:
    """The decisions about one stream group. `now_ms` is a monotonic clock.

    Only this object knows when it last heard a member. A coordinator that takes over gives each member a whole session.
    """

    def __init__(self, progress: StreamProgress, *, now_ms: int) -> None:
        self.progress = progress
        self._news = Membership(at=0)
        self._storing: Membership | None = None
        self._next_start = progress.next_start
        self._until_ms = dict.fromkeys(progress.members, now_ms + progress.longest_session_ms)
        self._heard: set[str] = set()
        # The process that made the last start of a member, by its name for itself.
        self._processes: dict[str, tuple[int, str]] = {}
        # Segments that their holders must release, and those that they have released: under that epoch.
        self._moving: set[int] = set()
        self._released: dict[int, int] = {}
        # Members with a record on its way.
        self._undecided_members: set[str] = set()
        self._undecided: set[int] = set()
        self._is_planned = False
        # Something has changed since the last plan, beside the topic and its traffic.
        self.must_plan = True

    @property
    def count(self) -> int:
        """How many members there are, including those with a record on its way."""
        return len(self.progress.members.keys() | self._undecided_members)

    # -- members -------------------------------------------------------------------------------------------

    def join(self, member: str, now_ms: int, process: str = "") -> int | None:
        """Start a member, or start it again; returns the number of the start. None: wait, a record of it is on its way.

        The segments of the earlier process of that name are free once this is stored: it may live on, and is fenced
        then.
        """
        if member in self._undecided_members:
            return None
        start, self._next_start = self._next_start, self._next_start + 1
        self._news.joined.append(Joined(member, start))
        self._undecided_members.add(member)
        self._processes[member] = (start, process)
        self._hear(member, now_ms)
        return start

    def touch(self, member: str, start: int, now_ms: int) -> None:
        """Note a heartbeat, though nothing may be answered yet. A session whose end is decided stays over."""
        if self.progress.members.get(member) == start and member not in self._undecided_members:
            self._hear(member, now_ms)

    def is_replaced(self, member: str, start: int, process: str) -> bool:
        """Whether that start of the member is over because another process has joined under its name, and lives.

        A process that repeats a join after a lost answer replaces itself. A process without a name for itself joins
        again.
        """
        last, by = self._processes.get(member, (0, ""))
        return "" not in (process, by) and by != process and start < last == self.progress.members.get(member)

    def hear(
        self, member: str, start: int, released: Iterable[tuple[int, int]], now_ms: int, process: str = ""
    ) -> Verdict:
        """Take a heartbeat, with the segments that the member has released, by epoch.

        It names the released segments, and does not just leave them out: a heartbeat may be late, and older than the
        epoch that it seems to deny. Under that epoch the member never takes the segment again.
        """
        verdict = self._of_member(member, start)
        if verdict is Verdict.ACCEPTED:
            self._hear(member, now_ms)
            # A coordinator that takes over learns it by this.
            self._processes[member] = (start, process)
            for segment_id, epoch in released:
                segment = self.progress.segments.get(segment_id)
                if segment is not None and (segment.epoch, segment.member, segment.start) == (epoch, member, start):
                    self._released[segment_id] = epoch
                    self.must_plan = True
        return verdict

    def told(self, member: str, start: int) -> Told:
        """The answer to a member that `hear` accepts.

        It leaves out segments that are about to be given away: either the member has released them, or its end is
        decided, and it waits.
        """
        told = Told([], [])
        for segment_id, segment in self.progress.segments.items():
            if (segment.member, segment.start) != (member, start) or self._released.get(segment_id) == segment.epoch:
                continue
            if segment_id in self._moving:
                told.release.append((segment_id, segment.epoch))
            else:
                told.holds.append(Hold(segment_id, segment.epoch, segment.position))
        return told

    def leave(self, member: str, start: int) -> Verdict:
        """End the member, which then has nothing any more."""
        verdict = self._of_member(member, start)
        if verdict is Verdict.ACCEPTED:
            self._end(member, start)
            return Verdict.LATER
        return Verdict.ACCEPTED if verdict is Verdict.FENCED else verdict

    def awaits(self, member: str) -> bool:
        """Whether a record is on its way that changes what the member has."""
        return member in self._undecided_members or any(
            given.member == member for news in (self._news, self._storing) if news for given in news.given
        )

    def _of_member(self, member: str, start: int) -> Verdict:
        if member in self._undecided_members:
            return Verdict.WAIT
        if self.progress.members.get(member) == start:
            return Verdict.ACCEPTED
        return Verdict.NEWER if start >= self.progress.next_start else Verdict.FENCED

    def _end(self, member: str, start: int) -> None:
        self._news.gone.append(Gone(member, start))
        self._undecided_members.add(member)

    def _hear(self, member: str, now_ms: int) -> None:
        if member not in self._heard:
            self._heard.add(member)
            self.must_plan = True
        self._until_ms[member] = now_ms + self.progress.settings.session_ms

    # -- commits -------------------------------------------------------------------------------------------

    def commit(self, member: str, segment: int, epoch: int, position: int) -> Verdict:
        """Commit everything below `position`. Only the last epoch of a segment moves it; a repeat is accepted again.

        The epoch identifies the member; another member that names it makes a mistake. After a session has ended, the
        epoch counts until another member gets the segment: that loses no message.
        """
        if segment in self._undecided:
            return Verdict.WAIT
        if self.progress.accepted(segment, epoch) >= position:
            return Verdict.ACCEPTED
        known = self.progress.segments.get(segment)
        if known is None:
            return Verdict.FENCED if segment in self.progress.left else Verdict.NEWER
        if epoch != known.epoch or not known.member or member != known.member:
            return Verdict.FENCED if epoch <= known.epoch else Verdict.NEWER
        self._news.committed.append(Committed(segment, epoch, position))
        self._undecided.add(segment)
        return Verdict.LATER

    # -- time, and the assignment --------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """End the sessions of members that were not heard for so long."""
        for member, start in self.progress.members.items():
            if self._until_ms[member] <= now_ms and member not in self._undecided_members:
                self._end(member, start)

    def left_ms(self, member: str, now_ms: int) -> int:
        """How long the session of a member still runs."""
        return max(self._until_ms.get(member, now_ms) - now_ms, 0)

    def next_event_ms(self) -> int | None:
        """When the next session may end."""
        return min((self._until_ms[member] for member in self.progress.members), default=None)

    def plan(self, state: TopicState, rates: Mapping[int, float], lives: Mapping[int, Segment] | None = None) -> None:
        """Let the group go on along the lineage of segments, and assign segments to its members.

        `rates` is the traffic of segments, `lives` are those that retention has removed, as they were. The next record
        gives away free segments; others that are to move are asked back. Everything is decided by what is stored, and
        only one such decision is on its way.
        """
        if self._is_planned:
            return
        self.must_plan = False
        advance = advance_of(state, self.progress.positions(), lives)
        leaving = {*advance.left, *(each.segment for each in advance.skipped)}
        if leaving & self._undecided:
            self.must_plan = True
            return
        self._news.entered.extend(advance.entered)
        self._news.left.extend(advance.left)
        self._news.skipped.extend(advance.skipped)
        self._undecided |= leaving
        segments = {
            **self.progress.segments,
            **{each.segment: StreamSegment(each.position, self.progress.first_epoch) for each in advance.entered},
        }
        wanted = {
            segment_id: segment
            for segment_id, segment in segments.items()
            if segment_id not in leaving and not _is_drained(state, segment_id, segment.position)
        }
        self._give(wanted, weights_of(wanted, rates))
        self._is_planned = _is_plan(self._news)

    def _give(self, wanted: Mapping[int, StreamSegment], weights: Mapping[int, float]) -> None:
        present = (self._heard & self.progress.members.keys()) - self._undecided_members
        holders: dict[int, str | None] = {}
        for segment_id, segment in wanted.items():
            if not self._is_free(segment_id, segment) and segment.member not in present:
                continue  # its holder was not heard yet: it has a session
            has_it = segment_id not in self._moving and self._released.get(segment_id) != segment.epoch
            holders[segment_id] = segment.member if has_it else None
        for segment_id, member in assign(holders, weights, present).items():
            segment = wanted[segment_id]
            if self._is_free(segment_id, segment):
                if segment_id in self._undecided:
                    self.must_plan = True
                    continue
                start = self.progress.members[member]
                self._news.given.append(Given(segment_id, segment.epoch + 1, member, start))
                self._undecided.add(segment_id)
            elif member != segment.member:
                self._moving.add(segment_id)

    def _is_free(self, segment_id: int, segment: StreamSegment) -> bool:
        """Whether no member has it, or its holder has released it, has started again, or is gone."""
        start = self.progress.members.get(segment.member)
        return start != segment.start or self._released.get(segment_id) == segment.epoch

    # -- records -------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is something to store."""
        return not self._news.is_empty

    @property
    def is_storing(self) -> bool:
        """Whether a record is on its way."""
        return self._storing is not None

    def take_news(self, wall_ms: int) -> Membership:
        """The next record, to be stored."""
        if self._storing is not None:
            raise RuntimeError("the record before is not stored yet")
        self._storing, self._news = replace(self._news, at=wall_ms), Membership(at=0)
        return self._storing

    def stored(self, news: Membership) -> None:
        """Note that the record is stored. From here on its decisions count, and are reported."""
        self._storing = None
        self.progress.apply(news)
        self._undecided_members = {each.member for part in (self._news.joined, self._news.gone) for each in part}
        self._undecided = {
            *self._news.left,
            *(each.segment for part in (self._news.committed, self._news.skipped, self._news.given) for each in part),
        }
        self._is_planned = _is_plan(self._news)
        self.must_plan |= _is_plan(news) or bool(news.joined or news.gone)
        for gone in news.gone:
            if gone.member not in self.progress.members:
                self._until_ms.pop(gone.member, None)
                self._processes.pop(gone.member, None)
                self._heard.discard(gone.member)
        for segment in (*news.left, *(given.segment for given in news.given)):
            self._moving.discard(segment)
            self._released.pop(segment, None)


def _is_plan(news: Membership) -> bool:
    return bool(news.entered or news.left or news.skipped or news.given)


def _is_drained(state: TopicState, segment_id: int, position: int) -> bool:
    segment = state.segment(segment_id)
    return segment is not None and segment.is_over_at(position)
