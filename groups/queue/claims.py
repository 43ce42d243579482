"""The decisions of a queue group's coordinator: which consumer gets which messages, and which acks hold.

The protocol is that of `model/claims.py` and docs/design.md §12. A decision becomes part of the next record. It counts,
and is answered, once the record is stored. Until then no other decision about the same messages is made (`undecided`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

from groups.offset_set import OffsetSet, ranges_of
from groups.queue.key_lines import KeyLines
from groups.queue.leases import Claim, Leases
from groups.queue.progress import QueueProgress, SegmentProgress
from groups.queue.recent_decisions import RecentDecisions
from groups.records import (
    AT_ONCE_MS,
    UNNAMED,
    Acked,
    Done,
    Dying,
    Ended,
    Exposed,
    Leased,
    Progress,
    Reached,
    Released,
    Rested,
    Untouched,
    by_segment,
)

LEASE_RAN_OUT, COORDINATOR_GONE = "lease-expired", "coordinator-gone"
MOST_REASON_CHARS = 500
MOST_RANGES = 256
"""A claim has at most so many ranges: its name stays short, and a decision about it takes no long turn."""


class Verdict(Enum):
    """The result of an ack, a release or an extension of messages."""

    ACCEPTED = "accepted"
    """It holds, and did so before."""
    LOST = "lost"
    """The claim is over: another consumer has the messages, or will get them, or they are done."""
    LATER = "later"
    """It is part of the next record, and holds once that is stored."""
    WAIT = "wait"
    """A record about them is on its way: ask again when it is stored."""
    NEWER = "newer"
    """Another coordinator has handed them out. This one does not own the log any more, and cannot decide."""


class Outcome(NamedTuple):
    """The verdict about `[start, stop)`."""

    start: int
    stop: int
    verdict: Verdict


class GivingBack(NamedTuple):
    """Why messages are given back. `dead` ones are given up; `untouched` ones never are: no consumer has tried them."""

    reason: str
    dead: bool = False
    untouched: bool = False


class Grant(NamedTuple):
    """The messages `[start, stop)` of a segment, handed out for the `delivery`th time.

    `first`: they are part of the claim that begins there. None: they are a claim of their own.
    """

    segment: int
    start: int
    stop: int
    delivery: int
    first: int | None = None

    @property
    def claim(self) -> Claim:
        """The claim to which they belong."""
        return Claim(self.segment, self.start if self.first is None else self.first, self.delivery)


class Aside(NamedTuple):
    """Messages, as ranges by segment. They are handed out once the record that exposes them is stored."""

    ranges: list[tuple[int, list[tuple[int, int]]]]

    @property
    def message_count(self) -> int:
        """How many messages there are."""
        return sum(stop - start for _, ranges in self.ranges for start, stop in ranges)


@dataclass(slots=True)
class _Live:
    """A segment in the coordinator's memory, beside its progress.

    `again` and `fresh` rest, and only wait for a claim: `again` was delivered before, `fresh` was not. `reserve` is
    exposed on record, and no consumer has it: it may be handed out at once. `unknown` is exposed, and the coordinator
    before may have handed it out. `undecided`: a record about them is on its way. Everything below `reached` was looked
    at; its record may be on its way as well.
    """

    reached: int
    again: OffsetSet = field(default_factory=OffsetSet)
    fresh: OffsetSet = field(default_factory=OffsetSet)
    reserve: OffsetSet = field(default_factory=OffsetSet)
    unknown: OffsetSet = field(default_factory=OffsetSet)
    undecided: OffsetSet = field(default_factory=OffsetSet)

    @property
    def sets(self) -> tuple[OffsetSet, ...]:
        """All messages that may be decided about, and that no consumer has leased from this coordinator."""
        return self.again, self.fresh, self.reserve, self.unknown


class QueueClaims:
    """The decisions about one queue group. `now_ms` is a monotonic clock, `wall_ms` the time of day.

    `news` is the record in the making: `take_news` returns it to be stored, `stored` notes that it is stored. Between
    the two there is at most one record.
    """

    def __init__(self, progress: QueueProgress, *, now_ms: int) -> None:
        """Begin with the state of the records.

        If the last of them are the leases of a handover, they are complete. Otherwise a consumer may have any message
        that is exposed: no other one gets it before the longest lease has run out. No consumer has a message that
        rests.
        """
        self.progress = progress
        self.leases = Leases()
        self._live: dict[int, _Live] = {}
        self._news = Progress(at=0)
        self._is_storing = False
        # Also past those of messages that are given up in records not stored yet.
        self._next_sequence = progress.next_sequence
        self._newest_segment = max(progress.segments, default=-1)
        self._waits_until_ms: int | None = None
        # Messages that rest after a delivery, and that the next record sets aside.
        self._again_aside_count = 0
        clean = progress.leases is not None
        for segment, each in progress.segments.items():
            live = self._live[segment] = _Live(each.horizon, OffsetSet(each.free_again), OffsetSet(each.free_fresh))
            if clean:
                live.reserve = each.exposed()
            else:
                live.unknown = each.exposed()
        self._take_over_leases(progress.leases or (), now_ms)
        if not clean and any(live.unknown for live in self._live.values()):
            self._waits_until_ms = now_ms + progress.longest_lease_ms
        self._lines = KeyLines() if progress.settings.order == "key" else None
        self.fresh_part = 1.0
        """The part of the messages below the last horizon that could be handed out at once, in the order of keys."""
        self.must_learn = self._lines is not None and any(each.unfinished() for each in progress.segments.values())

    def _take_over_leases(self, leases: Iterable[Leased], now_ms: int) -> None:
        """Let these leases run on. The coordinator that has written those without a name does not know their claims."""
        for leased in leases:
            live, until_ms = self._live.get(leased.segment), now_ms + max(leased.left_ms, 0)
            if live is not None:
                live.reserve.remove_all(leased.ranges)
            if leased.first != UNNAMED or live is None:
                self.leases.add(Claim(leased.segment, leased.first, leased.delivery), leased.ranges, until_ms)
                continue
            live.unknown.add_all(leased.ranges)
            self._waits_until_ms = max(until_ms, self._waits_until_ms or until_ms)

    @property
    def keeps_order(self) -> bool:
        """Whether messages of a key are handed out one after the other."""
        return self._lines is not None

    # -- keys ------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[tuple[int, int, int]]:
        """The messages whose keys must be learned before anything is handed out, as (segment, start, stop)."""
        segments = sorted(self.progress.segments.items())
        return [(segment, *each) for segment, progress in segments for each in progress.unfinished().ranges()]

    def line_up(self, segment: int, offset: int, keys: Sequence[bytes | str | None]) -> None:
        """The keys of the messages from `offset` on, in a group that keeps the order of keys: they join the lines."""
        if self._lines is None:
            return
        live = self._live[segment]
        stop = offset + len(keys)
        waiting = OffsetSet(each for offsets in live.sets for each in offsets.within(offset, stop))
        # Of each key, another coordinator may have handed out only the first of its line.
        aside = self._lines.add(segment, offset, keys, waiting)
        for offsets in live.sets:
            offsets.remove_all(aside)

    def learned(self) -> None:
        """All keys are learned."""
        self.must_learn = False

    # -- what there is -------------------------------------------------------------------------------------

    @property
    def _held_count(self) -> int:
        """How many messages consumers have, as far as that is known, or have a record about them on its way."""
        return self.leases.count + sum(len(live.unknown) + len(live.undecided) for live in self._live.values())

    @property
    def undone_count(self) -> int:
        """How many messages were handed out, or are about to be, and are not done. Some of them may rest."""
        resting = sum(each.resting_count for each in self.progress.segments.values())
        return self._held_count + self.reserve_count + resting - self._again_aside_count

    @property
    def room(self) -> int:
        """How many more messages consumers may have."""
        return max(self.progress.settings.max_in_flight - self._held_count, 0)

    @property
    def _fresh_room(self) -> int:
        """How many messages may be handed out for the first time: none while too many are not done."""
        return max(self.progress.settings.max_in_flight - self.undone_count, 0)

    def running(self, now_ms: int) -> dict[str, int]:
        """The messages with a running lease, by consumer: the `in_flight` of the group.

        Messages that the coordinator before may have handed out have no consumer's name. Messages that were given back,
        have run out or rest are not counted, though `max_in_flight` counts them.
        """
        running = self.leases.running(now_ms)
        if self._waits_until_ms is not None and now_ms < self._waits_until_ms:
            unknown = sum(len(live.unknown) for live in self._live.values())
            if unknown:
                running[""] = running.get("", 0) + unknown
        return running

    @property
    def may_be_leased(self) -> bool:
        """Whether consumers may have messages with a running lease, also from the coordinator before."""
        return bool(self.leases.count) or any(live.unknown for live in self._live.values())

    @property
    def has_room(self) -> bool:
        """Whether new messages may be handed out."""
        looks_on = self._lines is None or self._lines.has_room
        return looks_on and self._fresh_room > 0

    @property
    def reserve_count(self) -> int:
        """How many messages are exposed on record, while no consumer has them."""
        return sum(len(live.reserve) for live in self._live.values())

    @property
    def fresh_count(self) -> int:
        """How many messages wait to be handed out for the first time."""
        return sum(len(live.fresh) for live in self._live.values())

    @property
    def available_count(self) -> int:
        """How many messages may be handed out at once, or with the next record."""
        again = sum(len(live.again) for live in self._live.values())
        reserve = self.reserve_count
        return min(again + reserve + min(self.fresh_count, self._fresh_room), self.room)

    def next_event(self, now_ms: int, wall_ms: int) -> int | None:
        """The ms from now until `tick` may have something to do; None if time alone changes nothing."""
        times = [each - now_ms for each in (self.leases.next_end_ms(), self._waits_until_ms) if each is not None]
        # Messages that are due by now only wait for a record that is on its way.
        dues = [due_ms for each in self.progress.segments.values() for due_ms in each.dues()]
        times += [due_ms - wall_ms for due_ms in dues if due_ms > wall_ms]
        return max(min(times), 0) if times else None

    # -- handing out ---------------------------------------------------------------------------------------

    def set_aside(self, most: int) -> Aside:
        """Let the next record expose messages, at most `most`: first those that were delivered before.

        They are handed out by `lease`, or `put_back`, once it is stored. Consumers never have more than `max_in_flight`
        at a time, and no message is handed out for the first time while so many are not done. In the order of keys, a
        message comes only if all messages ahead of it are done, or come with it.
        """
        gone = Counter[int]()
        most = min(most, self.room)
        # Never exposes more than consumers may have, also for the coordinator that comes next.
        again = self._take_from("again", min(most, self.room - self.reserve_count), gone)
        reserve = self._take_from("reserve", most - again.message_count, gone)
        self._again_aside_count += again.message_count
        for segment, ranges in (*again.ranges, *reserve.ranges):
            self._expose(segment, ranges)
        fresh = self._take_from(
            "fresh", min(most - again.message_count - reserve.message_count, self._fresh_room), gone
        )
        for segment, ranges in fresh.ranges:
            self._expose(segment, ranges)
        return Aside(again.ranges + reserve.ranges + fresh.ranges)

    def _expose(self, segment: int, ranges: Sequence[tuple[int, int]]) -> None:
        self._news.exposed.extend(Exposed(segment, start, stop) for start, stop in ranges)
        self._live[segment].undecided.add_all(ranges)

    def hand_out(self, most: int, until_ms: int, *, scattered: bool = False, consumer: str = "") -> list[Grant]:
        """Lease messages of the reserve to a consumer at once, at most `most`. Otherwise as `set_aside`."""
        aside = self._take_from("reserve", min(most, self.room), Counter[int]())
        return self.lease(aside, until_ms, scattered=scattered, consumer=consumer)

    def lease(self, aside: Aside, until_ms: int, *, scattered: bool = False, consumer: str = "") -> list[Grant]:
        """Lease messages to a consumer, now that the record that exposes them is stored.

        If they may be `scattered`, the messages of a segment with the same number of deliveries are one claim, even if
        others lie between them.
        """
        lease = partial(self._lease_scattered if scattered else self._lease_each, consumer=consumer)
        return [grant for segment, ranges in aside.ranges for grant in lease(segment, ranges, until_ms)]

    def put_back(self, aside: Aside) -> None:
        """Return messages whose consumer is gone: they are exposed on record, and no consumer has them."""
        for segment, ranges in aside.ranges:
            self._live[segment].reserve.add_all(ranges)

    def withdraw(self) -> None:
        """Let the reserve rest again, once that is stored: the next coordinator then knows that it was not handed out.

        Until then no consumer gets it. Stopped before it is stored, the next coordinator takes it for handed out.
        """
        for segment, live in self._live.items():
            for start, stop in live.reserve.ranges():
                for first, behind, over in self.progress.segments[segment].pieces_by_delivery(start, stop):
                    if over:
                        self._news.ended.append(Ended(segment, first, behind, over, AT_ONCE_MS))
                    else:
                        self._news.rested.append(Rested(segment, first, behind, AT_ONCE_MS))
                    self._decide(segment, first, behind)

    def _take_from(self, which: Literal["again", "reserve", "fresh"], most: int, gone: "Counter[int]") -> Aside:
        aside = Aside([])
        for segment in sorted(self._live):
            if most <= 0:
                break
            offsets: OffsetSet = getattr(self._live[segment], which)
            taken = offsets.take(most) if self._lines is None else self._in_order(segment, offsets, most, gone)
            if taken:
                aside.ranges.append((segment, taken))
                most -= sum(stop - start for start, stop in taken)
        return aside

    def _in_order(self, segment: int, offsets: OffsetSet, most: int, gone: "Counter[int]") -> list[tuple[int, int]]:
        """Take up to `most` messages that are next of their keys. The others wait aside."""
        assert self._lines is not None
        taken: list[int] = []
        aside: list[int] = []
        for offset in chain.from_iterable(range(*each) for each in offsets.ranges()):
            if len(taken) >= most:
                break
            (taken if self._lines.may_go(segment, offset, gone) else aside).append(offset)
        if taken or aside:
            offsets.remove(0, max(*taken[-1:], *aside[-1:], 0) + 1)
            self._lines.park(segment, aside)
        return ranges_of(taken)

    def _lease_each(
        self, segment: int, taken: Sequence[tuple[int, int]], until_ms: int, *, consumer: str
    ) -> list[Grant]:
        """Lease each range as a claim.

        A consumer never sees a lower number of deliveries than there were: the last delivery that is over is stored.
        """
        grants: list[Grant] = []
        for start, stop in taken:
            for first, behind, over in self.progress.segments[segment].pieces_by_delivery(start, stop):
                self.leases.add(Claim(segment, first, over + 1), [(first, behind)], until_ms, consumer)
                grants.append(Grant(segment, first, behind, over + 1))
        return grants

    def _lease_scattered(
        self, segment: int, taken: Sequence[tuple[int, int]], until_ms: int, *, consumer: str
    ) -> list[Grant]:
        """As `_lease_each`, but many ranges are a claim, which has the name of the first.

        No other claim has that name. A message is handed out once for each delivery, unless no consumer has seen it.
        Then no consumer has seen the messages behind it in its claim either, and nothing is left of that claim.
        """
        by_delivery: dict[int, list[tuple[int, int]]] = {}
        for start, stop in taken:
            for first, behind, over in self.progress.segments[segment].pieces_by_delivery(start, stop):
                by_delivery.setdefault(over + 1, []).append((first, behind))
        grants: list[Grant] = []
        for delivery, ranges in by_delivery.items():
            for number in range(0, len(ranges), MOST_RANGES):
                some = ranges[number : number + MOST_RANGES]
                claim = Claim(segment, some[0][0], delivery)
                self.leases.add(claim, some, until_ms, consumer)
                grants += [Grant(segment, start, stop, delivery, claim.first) for start, stop in some]
        return grants

    def take_back(self, grant: Grant, start: int) -> None:
        """Take back messages from `start` on. No consumer has seen them, so their next delivery has the same number."""
        for first, behind in self.leases.take(grant.claim, start, grant.stop):
            self._live[grant.segment].reserve.add(first, behind)

    def lose(self, grant: Grant, start: int, stop: int) -> None:
        """Note that messages to be handed out are gone: retention or a repair has removed them."""
        for first, behind in self.leases.take(grant.claim, start, stop):
            self._news.skipped.append(Done(grant.segment, first, behind))
            self._decide(grant.segment, first, behind)

    # -- the horizon ---------------------------------------------------------------------------------------

    def raise_horizon(
        self,
        segment: int,
        start: int,
        horizon: int,
        *,
        rested: Iterable[Rested] = (),
        expired: Sequence[Done] = (),
        skipped: Sequence[Done] = (),
        passed: Sequence[Done] = (),
    ) -> None:
        """Let messages below `horizon` wait for a claim, except those that are delayed, have expired or are gone.

        `start` is where the group begins in the segment, if it is new to it. `passed` messages belong to other members
        of a topic group: they are done with the horizon, and need no decision, since no consumer gets a claim on them.
        """
        live = self._live.setdefault(segment, _Live(start))
        self._newest_segment = max(self._newest_segment, segment)
        self._news.reached.append(Reached(segment, start, horizon))
        self._news.rested.extend(rested)
        self._news.expired.extend(expired)
        self._news.skipped.extend(skipped)
        self._news.passed.extend(passed)
        live.fresh.add(live.reached, horizon)
        live.reached = max(live.reached, horizon)
        live.fresh.remove_all((each[1], each[2]) for each in (*rested, *expired, *skipped, *passed))

    def leave(self, segment: int) -> None:
        """Note that the segment is sealed, and handed out to its end."""
        self._news.left.append(segment)

    # -- acks, releases, extensions ------------------------------------------------------------------------

    def ack(self, claim: Claim, start: int, stop: int) -> list[Outcome]:
        """Ack messages of a claim.

        An ack after the lease has run out counts as long as the end of the delivery is not decided. A repeated one is
        accepted again.
        """
        outcomes, taken = self._take(claim, start, stop, self.progress.recent_acks)
        self._news.acked.extend(Acked(claim.segment, *each, claim.delivery) for each in taken)
        return outcomes

    def ack_all(self, claim: Claim, ranges: Sequence[tuple[int, int]]) -> list[Outcome]:
        """As `ack` of each of these, but all at once if they are what is left of the claim."""
        if not self.leases.take_whole(claim, ranges):
            return [outcome for start, stop in ranges for outcome in self.ack(claim, start, stop)]
        live = self._live[claim.segment]
        live.undecided.add_all(ranges)
        self._news.acked.extend(Acked(claim.segment, start, stop, claim.delivery) for start, stop in ranges)
        return [Outcome(start, stop, Verdict.LATER) for start, stop in ranges]

    def release(self, claim: Claim, start: int, stop: int, why: GivingBack, *, due_ms: int) -> list[Outcome]:
        """Give messages of a claim back: they rest until `due_ms` (0: not at all). A repeated one is accepted again."""
        outcomes, taken = self._take(claim, start, stop, self.progress.recent_releases)
        for first, behind in taken:
            self._news.released.append(Released(claim.segment, first, behind, claim.delivery))
            self._end(claim.segment, first, behind, claim.delivery, why, due_ms=due_ms)
        return outcomes

    def extend(self, claim: Claim, start: int, stop: int, until_ms: int) -> list[Outcome]:
        """Let the lease of messages of a claim run until then. Nothing of it is stored: a lease is only in memory.

        A claim that the coordinator before has handed out is taken up: no other consumer has its delivery.
        """
        consumer = self.leases.consumer_of(claim)
        leased = OffsetSet(self.leases.take(claim, start, stop))
        outcomes: list[Outcome] = []
        for part in leased.parts(start, stop):
            found = [Outcome(part.start, part.stop, Verdict.ACCEPTED)] if part.inside else None
            for each in found or self._verdicts(claim, part.start, part.stop, None):
                verdict = Verdict.ACCEPTED if each.verdict is Verdict.LATER else each.verdict
                outcomes.append(Outcome(each.start, each.stop, verdict))
                if verdict is Verdict.ACCEPTED:
                    self._live[claim.segment].unknown.remove(each.start, each.stop)
                    self.leases.add(claim, [(each.start, each.stop)], until_ms, consumer)
        return outcomes

    def _take(
        self, claim: Claim, start: int, stop: int, recent: RecentDecisions
    ) -> tuple[list[Outcome], list[tuple[int, int]]]:
        """Decide about messages of a claim: the verdicts, and the ranges that the next record must have."""
        found = self.leases.take(claim, start, stop)
        if found == [(start, stop)]:
            self._decide(claim.segment, start, stop)
            return [Outcome(start, stop, Verdict.LATER)], found
        leased = OffsetSet(found)
        outcomes: list[Outcome] = []
        taken: list[tuple[int, int]] = []
        for part in leased.parts(start, stop):
            inside = [Outcome(part.start, part.stop, Verdict.LATER)] if part.inside else None
            for outcome in inside or self._verdicts(claim, part.start, part.stop, recent):
                outcomes.append(outcome)
                if outcome.verdict is Verdict.LATER:
                    taken.append((outcome.start, outcome.stop))
                    self._decide(claim.segment, outcome.start, outcome.stop)
        return outcomes, taken

    def _verdicts(self, claim: Claim, start: int, stop: int, recent: RecentDecisions | None) -> Iterator[Outcome]:
        """Verdicts on messages that are not leased by the claim, as far as this coordinator knows.

        Those among the `recent` ones were decided in the same way: the request is a repeat.
        """
        live, progress = self._live.get(claim.segment), self.progress.segments.get(claim.segment)
        undecided = live.undecided if live is not None else OffsetSet()
        for part in undecided.parts(start, stop):
            if part.inside:
                yield Outcome(part.start, part.stop, Verdict.WAIT)
                continue
            known = OffsetSet()
            if recent is not None:
                known = recent.within(claim.segment, part.start, part.stop, claim.delivery)
            for each in known.parts(part.start, part.stop):
                if each.inside:
                    yield Outcome(each.start, each.stop, Verdict.ACCEPTED)
                elif live is None or progress is None:
                    # Either it is finished, or this coordinator does not know it.
                    verdict = Verdict.NEWER if claim.segment > self._newest_segment else Verdict.LOST
                    yield Outcome(each.start, each.stop, verdict)
                else:
                    yield from _of_another(live, progress, claim, each.start, each.stop)

    # -- time ----------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """End deliveries whose time is over, and free resting messages that are due."""
        for claim, ranges in self.leases.run_out(now_ms):
            for start, stop in ranges:
                self._end_by_time(claim.segment, start, stop, claim.delivery, wall_ms, LEASE_RAN_OUT)
        if self._waits_until_ms is not None and now_ms >= self._waits_until_ms:
            self._waits_until_ms = None
            self._end_unknown(wall_ms)
        for segment, progress in self.progress.segments.items():
            if any(due_ms <= wall_ms for due_ms in progress.dues()):
                for due_ms in [each for each in progress.dues() if each <= wall_ms]:
                    self._live[segment].again.add_all(progress.resting_until(due_ms))
                    self._live[segment].fresh.add_all(progress.delayed_until(due_ms))
                progress.come_due(wall_ms)

    def _end_unknown(self, wall_ms: int) -> None:
        """End the leases of the coordinator before: all have run out by now. That counts against no message."""
        for segment, live in self._live.items():
            unknown, live.unknown = live.unknown, OffsetSet()
            for start, stop in unknown.ranges():
                for first, behind, over in self.progress.segments[segment].pieces_by_delivery(start, stop):
                    self._decide(segment, first, behind)
                    self._end(segment, first, behind, over + 1, GivingBack(COORDINATOR_GONE, untouched=True), due_ms=0)

    def _end_by_time(self, segment: int, start: int, stop: int, delivery: int, wall_ms: int, reason: str) -> None:
        self._decide(segment, start, stop)
        due_ms = wall_ms + self.progress.settings.backoff_ms(delivery)
        self._end(segment, start, stop, delivery, GivingBack(reason), due_ms=due_ms)

    def _end(self, segment: int, start: int, stop: int, delivery: int, why: GivingBack, *, due_ms: int) -> None:
        """Let the next record say that a delivery is over, or that the messages are given up."""
        due_ms = due_ms or AT_ONCE_MS
        if why.untouched:
            self._news.untouched.append(Untouched(segment, start, stop))
            self._news.ended.append(Ended(segment, start, stop, delivery, due_ms))
            return
        for first, behind, untouched in self.progress.segments[segment].pieces_by_untouched(start, stop):
            if why.dead or delivery - untouched >= self.progress.settings.max_deliveries:
                sequence, self._next_sequence = self._next_sequence, self._next_sequence + behind - first
                reason = why.reason[:MOST_REASON_CHARS]
                self._news.dying.append(Dying(segment, first, behind, delivery, sequence, reason))
            else:
                self._news.ended.append(Ended(segment, first, behind, delivery, due_ms))

    # -- dead letters --------------------------------------------------------------------------------------

    def to_bury(self) -> list[Dying]:
        """Messages that are given up, and whose dead letters are not known to be stored."""
        return [
            each for each in self.progress.dying if not self._live[each.segment].undecided.within(each.start, each.stop)
        ]

    def bury(self, dying: Dying) -> None:
        """Note that the dead letters of these messages are stored."""
        self._news.dead.append(Done(dying.segment, dying.start, dying.stop))
        self._decide(dying.segment, dying.start, dying.stop)

    # -- records -------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is something to store."""
        return not self._news.is_empty

    @property
    def is_storing(self) -> bool:
        """Whether a record is on its way."""
        return self._is_storing

    def take_news(self, wall_ms: int) -> Progress:
        """The next record, to be stored."""
        if self._is_storing:
            raise RuntimeError("the record before is not stored yet")
        self._is_storing = True
        news, self._news = self._news, Progress(at=0)
        self._have_rest(news)
        return replace(news, at=wall_ms)

    def _have_rest(self, news: Progress) -> None:
        """Let all messages below the new horizons rest, except those that the same record exposes."""
        looked_at: dict[int, OffsetSet] = {}
        for segment, start, horizon in news.reached:
            known = self.progress.segments.get(segment)
            looked_at.setdefault(segment, OffsetSet()).add(start if known is None else known.horizon, horizon)
        if not looked_at:
            return
        count = sum(map(len, looked_at.values()))
        parked = {} if self._lines is None else self._lines.parked
        could_not_go = sum(
            behind - first
            for segment, offsets in looked_at.items()
            for start, stop in offsets.ranges()
            for first, behind in parked.get(segment, OffsetSet()).within(start, stop)
        )
        parts = (news.rested, news.expired, news.skipped, news.passed)
        for segment, ranges in by_segment((each[0], each[1], each[2]) for part in parts for each in part).items():
            if segment in looked_at:
                looked_at[segment].remove_all(ranges)
        if self._lines is not None and count:
            self.fresh_part = (sum(map(len, looked_at.values())) - could_not_go) / count
        for segment, ranges in by_segment(news.exposed).items():
            if segment in looked_at:
                looked_at[segment].remove_all(ranges)
        for segment, offsets in looked_at.items():
            news.rested.extend(Rested(segment, *each, AT_ONCE_MS) for each in offsets.ranges())

    def stored(self, news: Progress) -> None:
        """Note that the record is stored. From here on its decisions count, and its messages are free for new ones."""
        self._is_storing = False
        self._again_aside_count = 0
        for segment, start, stop, due_ms in news.rested:
            known = self.progress.segments.get(segment)
            if due_ms == AT_ONCE_MS and known is not None and start < known.horizon:
                # It was withdrawn. What is new waits for a claim already.
                self._live[segment].fresh.add(start, stop)
        self.progress.apply(news)
        for ended in news.ended:
            if ended.due_ms == AT_ONCE_MS:
                self._live[ended.segment].again.add(ended.start, ended.stop)
        for segment, ranges in by_segment(news.decided()).items():
            self._live[segment].undecided.remove_all(ranges)
        if self._lines is not None:
            self._move_lines_on(self._lines, news)
        for segment in [segment for segment in self._live if segment not in self.progress.segments]:
            if not any(reached.segment == segment for reached in self._news.reached):
                del self._live[segment]

    def _move_lines_on(self, lines: KeyLines, news: Progress) -> None:
        """Let messages behind those that are done be next: only now, since only now those are done."""
        done = ((each[0], each[1], each[2]) for each in (*news.acked, *news.dead, *news.expired, *news.skipped))
        for segment, following in lines.done(done).items():
            self._free(segment, following)

    def _free(self, segment: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Make messages that waited behind others available: the records say, or will, whether they rest."""
        live, known = self._live[segment], self.progress.segments.get(segment)
        begin = 0 if known is None else known.horizon
        again = [] if known is None else known.free_again
        fresh = [(begin, ranges[-1][1])] if known is None else [*known.free_fresh, (begin, ranges[-1][1])]
        left = OffsetSet(ranges)
        for offsets, those in ((live.again, again), (live.fresh, fresh)):
            found = [each for start, stop in those for each in left.within(start, stop)]
            offsets.add_all(found)
            left.remove_all(found)
        live.reserve.add_all(left.ranges())

    def written_down(self, now_ms: int) -> list[Leased]:
        """Everything handed out that is not over, for a coordinator to which this one hands over.

        Includes messages that the coordinator before may have handed out, for as long as their leases may run.
        """
        found = self.leases.written_down(now_ms)
        left_ms = 0 if self._waits_until_ms is None else self._waits_until_ms - now_ms
        for segment, live in self._live.items():
            for start, stop in live.unknown.ranges():
                for first, behind, over in self.progress.segments[segment].pieces_by_delivery(start, stop):
                    found.append(Leased(segment, UNNAMED, over + 1, left_ms, [(first, behind)]))
        return found

    def _decide(self, segment: int, start: int, stop: int) -> None:
        """Keep these from other decisions until the next record is stored."""
        live = self._live[segment]
        live.undecided.add(start, stop)
        for offsets in live.sets:
            offsets.remove(start, stop)


def _of_another(live: _Live, progress: SegmentProgress, claim: Claim, start: int, stop: int) -> Iterator[Outcome]:
    """Verdicts on messages that this coordinator has not handed out by the claim, or that are over.

    A delivery that is not over, and not from the coordinator before, comes from the next coordinator.
    """
    for done in progress.done.parts(start, stop):
        if done.inside:
            yield Outcome(done.start, done.stop, Verdict.LOST)
            continue
        for dying in progress.dying.parts(done.start, done.stop):
            if dying.inside:
                yield Outcome(dying.start, dying.stop, Verdict.LOST)
            else:
                yield from _of_unfinished(live, progress, claim, dying.start, dying.stop)


def _of_unfinished(live: _Live, progress: SegmentProgress, claim: Claim, start: int, stop: int) -> Iterator[Outcome]:
    for first, behind, over in progress.pieces_by_delivery(start, stop):
        if claim.delivery <= over:
            yield Outcome(first, behind, Verdict.LOST)
            continue
        for each in live.unknown.parts(first, behind):
            of_the_one_before = each.inside and claim.delivery == over + 1
            yield Outcome(each.start, each.stop, Verdict.LATER if of_the_one_before else Verdict.NEWER)
