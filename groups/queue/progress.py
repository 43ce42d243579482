"""The sum of a queue group's records: all that a coordinator knows when it takes over."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groups.offset_set import OffsetSet
from groups.queue.recent_decisions import RecentDecisions
from groups.queue.redrives import Redrives
from groups.records import (
    AT_ONCE_MS,
    Acked,
    Dying,
    Ended,
    Exposed,
    Leased,
    Leases,
    Progress,
    Reached,
    Redriven,
    Redriving,
    Released,
    Reset,
    Rested,
    Source,
    by_segment,
    source_from_plain,
    source_to_plain,
)
from groups.settings import GroupSettings, recorded_settings


@dataclass(slots=True)
class SegmentProgress:
    """How far a group is in one segment.

    `[start, horizon)` was looked at. Messages of it that rest were not handed out since their last delivery was over: a
    record exposes them before they are handed out. `resting` has those that rest after a delivery, by the time at which
    they are due, `delayed` those that rest before the first; those that only wait for a claim are due at `AT_ONCE_MS`.
    `done` is acked, dead or expired. `dying` is given up, and its dead letters may not be stored. `over` has messages
    that are not done, by the last delivery that is over; those never delivered are in none. `untouched` has them by the
    number of deliveries that do not count.
    """

    start: int
    horizon: int
    has_left: bool = False
    done: OffsetSet = field(default_factory=OffsetSet)
    dying: OffsetSet = field(default_factory=OffsetSet)
    over: dict[int, OffsetSet] = field(default_factory=dict)
    resting: dict[int, OffsetSet] = field(default_factory=dict)
    delayed: dict[int, OffsetSet] = field(default_factory=dict)
    untouched: dict[int, OffsetSet] = field(default_factory=dict)

    def pieces_by_delivery(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """`[start, stop)` in pieces of one last delivery each, as (start, stop, delivery); 0 for none."""
        return _pieces(self.over, start, stop)

    def pieces_by_untouched(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """`[start, stop)` in pieces with as many deliveries that do not count, as (start, stop, number)."""
        return _pieces(self.untouched, start, stop)

    def spare(self, start: int, stop: int) -> None:
        """Do not count the last delivery of these."""
        for first, behind, number in self.pieces_by_untouched(start, stop):
            _remove_from_all(self.untouched, first, behind)
            self.untouched.setdefault(number + 1, OffsetSet()).add(first, behind)

    def dues(self) -> set[int]:
        """The times at which resting messages are due, except at once."""
        return (self.resting.keys() | self.delayed.keys()) - {AT_ONCE_MS}

    def come_due(self, wall_ms: int) -> None:
        """Free all messages that are due by now: they only wait for a claim."""
        for sets in (self.resting, self.delayed):
            for due_ms in [each for each in sets if AT_ONCE_MS < each <= wall_ms]:
                sets.setdefault(AT_ONCE_MS, OffsetSet()).add_all(sets.pop(due_ms).ranges())

    @property
    def resting_count(self) -> int:
        """How many messages rest after a delivery."""
        return sum(map(len, self.resting.values()))

    def resting_until(self, due_ms: int) -> list[tuple[int, int]]:
        """The ranges that rest until then after a delivery."""
        return self.resting[due_ms].ranges() if due_ms in self.resting else []

    def delayed_until(self, due_ms: int) -> list[tuple[int, int]]:
        """The ranges that rest until then before the first delivery."""
        return self.delayed[due_ms].ranges() if due_ms in self.delayed else []

    @property
    def free_again(self) -> list[tuple[int, int]]:
        """The ranges that were delivered before, and only wait for a claim."""
        return self.resting_until(AT_ONCE_MS)

    @property
    def free_fresh(self) -> list[tuple[int, int]]:
        """The ranges that were never delivered, and only wait for a claim."""
        return self.delayed_until(AT_ONCE_MS)

    def due_at(self, due_ms: int) -> list[tuple[int, int]]:
        """The ranges that rest until then."""
        return sorted(self.resting_until(due_ms) + self.delayed_until(due_ms))

    def unfinished(self) -> OffsetSet:
        """The messages below the horizon that are not done."""
        return OffsetSet(self.done.without(self.start, self.horizon))

    def exposed(self) -> OffsetSet:
        """Messages that may have been handed out since their last delivery was over, and are not done or dying."""
        found = self.unfinished()
        for offsets in (self.dying, *self.resting.values(), *self.delayed.values()):
            for start, stop in offsets.ranges():
                found.remove(start, stop)
        return found

    @property
    def is_finished(self) -> bool:
        """Whether all of it was handed out, and is done."""
        return self.has_left and len(self.done) >= self.horizon - self.start

    def finish(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Note that these are done."""
        self.done.add_all(ranges)
        if self.dying or self.over or self.untouched or self.resting or self.delayed:
            self.dying.remove_all(ranges)
            for sets in (self.over, self.untouched, self.resting, self.delayed):
                _remove_all_from_all(sets, ranges)

    def end(self, start: int, stop: int, delivery: int) -> None:
        """Note that a delivery is over."""
        _remove_from_all(self.over, start, stop)
        self.over.setdefault(delivery, OffsetSet()).add(start, stop)

    def rest(self, start: int, stop: int, due_ms: int) -> None:
        """Let these, which were delivered, rest until then."""
        self.resting.setdefault(due_ms, OffsetSet()).add(start, stop)

    def delay(self, ranges: Iterable[tuple[int, int]], due_ms: int) -> None:
        """Let these, which were never delivered, rest until then."""
        self.delayed.setdefault(due_ms, OffsetSet()).add_all(ranges)

    def expose(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Let these rest no more."""
        _remove_all_from_all(self.resting, ranges)
        _remove_all_from_all(self.delayed, ranges)

    def to_plain(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "start": self.start,
            "horizon": self.horizon,
            "has_left": self.has_left,
            "done": self.done.to_plain(),
            "dying": self.dying.to_plain(),
            "over": [[delivery, offsets.to_plain()] for delivery, offsets in self.over.items()],
            "resting": [[due_ms, offsets.to_plain()] for due_ms, offsets in self.resting.items()],
            "delayed": [[due_ms, offsets.to_plain()] for due_ms, offsets in self.delayed.items()],
            "untouched": [[number, offsets.to_plain()] for number, offsets in self.untouched.items()],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "SegmentProgress":
        """From a snapshot."""
        return cls(
            plain["start"],
            plain["horizon"],
            plain["has_left"],
            OffsetSet.from_plain(plain["done"]),
            OffsetSet.from_plain(plain["dying"]),
            {delivery: OffsetSet.from_plain(bounds) for delivery, bounds in plain["over"]},
            {due_ms: OffsetSet.from_plain(bounds) for due_ms, bounds in plain["resting"]},
            {due_ms: OffsetSet.from_plain(bounds) for due_ms, bounds in plain["delayed"]},
            # Coordinators of earlier versions did not distinguish these.
            {number: OffsetSet.from_plain(bounds) for number, bounds in plain.get("untouched", ())},
        )


class QueueProgress:
    """A queue group as its records describe it.

    `dying` are the messages whose dead letters may not be stored, as they were given up. `next_sequence` is that of the
    next dead letter. `longest_lease_ms`: no lease that may still run is longer. `leases` are those of a handover, if it
    is the last record; else None. `source` is where the group's messages are, if they are not in a topic of its own.
    """

    __slots__ = (
        "dead_count",
        "dying",
        "expired_count",
        "id",
        "leases",
        "longest_lease_ms",
        "next_sequence",
        "recent_acks",
        "recent_releases",
        "redrives",
        "segments",
        "settings",
        "skipped_count",
        "source",
    )

    def __init__(
        self, group_id: str, settings: GroupSettings, positions: Mapping[int, int], source: Source | None = None
    ) -> None:
        self.id, self.settings, self.source = group_id, settings, source
        self.segments = {segment: SegmentProgress(offset, offset) for segment, offset in positions.items()}
        self.dying: list[Dying] = []
        self.next_sequence = 0
        self.dead_count = 0
        self.expired_count = self.skipped_count = 0
        self.longest_lease_ms = settings.lease_ms
        self.recent_acks, self.recent_releases = RecentDecisions(), RecentDecisions()
        self.redrives = Redrives(group_id)
        self.leases: list[Leased] | None = []

    def configure(self, settings: GroupSettings) -> None:
        """Use other settings from now on."""
        self.settings, self.leases = settings, None
        self.longest_lease_ms = max(self.longest_lease_ms, settings.lease_ms)

    def reset(self, record: Reset) -> "QueueProgress":
        """The next incarnation of the group, which begins where the record says. Its counts go on."""
        fresh = QueueProgress(record.id, self.settings, dict(record.positions), self.source)
        fresh.dead_count, fresh.expired_count = self.dead_count, self.expired_count
        fresh.skipped_count, fresh.redrives = self.skipped_count, self.redrives
        return fresh

    def hand_over(self, record: Leases) -> None:
        """Note that the coordinator has written its leases down, and hands out nothing more."""
        self.leases = record.leases

    def take(self) -> None:
        """Note that another coordinator has begun."""
        self.leases = None

    def redrive(self, record: Redriving | Redriven) -> None:
        """Note that dead letters are to be published again, or are published."""
        self.leases = None
        self.redrives.add(record)

    @property
    def has_errands(self) -> bool:
        """Whether there are messages to publish although no client asks for them."""
        return bool(self.dying) or self.redrives.pending is not None

    @property
    def may_be_leased(self) -> bool:
        """Whether consumers may have messages of the coordinator before."""
        if self.leases is not None:
            return bool(self.leases)
        return any(each.exposed() for each in self.segments.values())

    def positions(self) -> dict[int, int]:
        """The offset from which on nothing was handed out, by segment."""
        return {segment: each.horizon for segment, each in self.segments.items() if not each.has_left}

    def apply(self, news: Progress) -> None:
        """Add a record. All parts of it hold from the same moment, so their order counts only by the group's rules."""
        self.leases = None
        for reached in news.reached:
            self._reach(reached)
        self._rest(news.rested, news.exposed)
        for ended in news.ended:
            self._end(ended)
        for spared in news.untouched:
            self.segments[spared.segment].spare(spared.start, spared.stop)
        for dying in news.dying:
            self._give_up(dying)
        self._ack(news.acked, news.at)
        self.recent_releases.rotate(news.at, self.longest_lease_ms)
        for (segment, delivery), ranges in _by_claim(news.released).items():
            self.recent_releases.add(segment, delivery, ranges)
        for each in news.dead:
            self._bury(each.segment, each.start, each.stop)
        for each in (*news.expired, *news.skipped):
            self.segments[each.segment].finish([(each.start, each.stop)])
        for segment, ranges in by_segment(news.passed).items():
            self.segments[segment].finish(ranges)
        self.expired_count += sum(each.stop - each.start for each in news.expired)
        self.skipped_count += sum(each.stop - each.start for each in news.skipped)
        for segment in news.left:
            self.segments[segment].has_left = True
        for segment in [segment for segment, each in self.segments.items() if each.is_finished]:
            del self.segments[segment]

    def _reach(self, reached: Reached) -> None:
        segment = self.segments.setdefault(reached.segment, SegmentProgress(reached.start, reached.start))
        segment.horizon = max(segment.horizon, reached.horizon)

    def _rest(self, rested: Iterable[Rested], exposed: Iterable[Exposed]) -> None:
        for segment, ranges in by_segment(exposed).items():
            self.segments[segment].expose(ranges)
        by_due: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for segment, start, stop, due_ms in rested:
            by_due.setdefault((segment, due_ms), []).append((start, stop))
        for (segment, due_ms), ranges in by_due.items():
            self.segments[segment].delay(ranges, due_ms)

    def _end(self, ended: Ended) -> None:
        segment = self.segments[ended.segment]
        segment.end(ended.start, ended.stop, ended.delivery)
        if ended.due_ms:
            segment.rest(ended.start, ended.stop, ended.due_ms)

    def _give_up(self, dying: Dying) -> None:
        segment = self.segments[dying.segment]
        segment.dying.add(dying.start, dying.stop)
        self.dying.append(dying)
        self.next_sequence = max(self.next_sequence, dying.sequence + dying.stop - dying.start)

    def _ack(self, acked: Iterable[Acked], at_ms: int) -> None:
        self.recent_acks.rotate(at_ms, self.longest_lease_ms)
        for (segment, delivery), ranges in _by_claim(acked).items():
            self.segments[segment].finish(ranges)
            self.recent_acks.add(segment, delivery, ranges)

    def _bury(self, segment: int, start: int, stop: int) -> None:
        self.segments[segment].finish([(start, stop)])
        self.dead_count += stop - start
        self.dying = [
            each for each in self.dying if not (each.segment == segment and start <= each.start and each.stop <= stop)
        ]

    def to_plain(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "id": self.id,
            "settings": self.settings.in_force(),
            "segments": [[segment, each.to_plain()] for segment, each in self.segments.items()],
            "dying": self.dying,
            "next_sequence": self.next_sequence,
            "dead_count": self.dead_count,
            "expired_count": self.expired_count,
            "skipped_count": self.skipped_count,
            "longest_lease_ms": self.longest_lease_ms,
            "recent_acks": self.recent_acks.to_plain(),
            "recent_releases": self.recent_releases.to_plain(),
            "redrives": self.redrives.to_plain(),
            "leases": self.leases,
            **source_to_plain(self.source),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "QueueProgress":
        """From a snapshot. Raises `KeyError` and `TypeError` for anything else."""
        progress = cls(plain["id"], recorded_settings(plain["settings"]), {}, source_from_plain(plain))
        progress.segments = {segment: SegmentProgress.from_plain(each) for segment, each in plain["segments"]}
        progress.dying = [Dying(*each) for each in plain["dying"]]
        progress.next_sequence, progress.dead_count = plain["next_sequence"], plain["dead_count"]
        progress.expired_count, progress.skipped_count = plain["expired_count"], plain["skipped_count"]
        progress.longest_lease_ms = plain["longest_lease_ms"]
        progress.recent_acks = RecentDecisions.from_plain(plain["recent_acks"])
        progress.recent_releases = RecentDecisions.from_plain(plain["recent_releases"])
        if "redrives" in plain:  # coordinators of earlier versions redrove nothing
            progress.redrives = Redrives.from_plain(plain["redrives"])
        progress.leases = None if plain["leases"] is None else [Leased(*each) for each in plain["leases"]]
        return progress


def _by_claim(decided: Iterable[Acked | Released]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Ranges by segment and delivery."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    ranges, last_segment, last_delivery = list[tuple[int, int]](), -1, -1
    for segment, start, stop, delivery in decided:
        # Mostly the same as the one before.
        if delivery != last_delivery or segment != last_segment:
            ranges = found.setdefault((segment, delivery), [])
            last_segment, last_delivery = segment, delivery
        ranges.append((start, stop))
    return found


def _pieces(sets: Mapping[int, OffsetSet], start: int, stop: int) -> list[tuple[int, int, int]]:
    """`[start, stop)` cut by the sets in which it lies, with the number of each; 0 for none."""
    if not sets:
        return [(start, stop, 0)]
    pieces = sorted(
        (first, behind, number) for number, offsets in sets.items() for first, behind in offsets.within(start, stop)
    )
    whole: list[tuple[int, int, int]] = []
    reached = start
    for first, behind, number in pieces:
        if first > reached:
            whole.append((reached, first, 0))
        whole.append((first, behind, number))
        reached = behind
    if reached < stop:
        whole.append((reached, stop, 0))
    return whole


def _remove_all_from_all(sets: dict[int, OffsetSet], ranges: Sequence[tuple[int, int]]) -> None:
    for name, offsets in list(sets.items()):
        offsets.remove_all(ranges)
        if not offsets:
            del sets[name]


def _remove_from_all(sets: dict[int, OffsetSet], start: int, stop: int) -> None:
    for name in [name for name, offsets in sets.items() if offsets.within(start, stop)]:
        sets[name].remove(start, stop)
        if not sets[name]:
            del sets[name]
