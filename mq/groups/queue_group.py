"""A queue group at its coordinator: it hands out messages, stores decisions, and answers once they are stored."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from filer.clock import Clock
from filer.errors import BraidError, Remedy, SegmentMoved
from filer.event_log import EventLog
from filer.topic.positions import Positions
from groups.claim_tokens import ClaimTokens
from groups.incarnations import next_id
from groups.queue.backlog import Seen, State, backlog, in_flight
from groups.queue.claim_pace import ClaimPace
from groups.queue.claims import Aside, GivingBack, Grant, Outcome, QueueClaims, Verdict
from groups.queue.leases import Claim
from groups.queue.progress import QueueProgress
from groups.queue.redrives import Redrives
from groups.records import Configured, Done, Dying, Leases, Progress, Redriving, Reset, Snapshot, Taken, key_of
from groups.settings import GroupSettings
from mq.base.errors import Conflict
from mq.groups.dead_letter_count import LettersSeen
from mq.groups.group_records import Append, GroupRecords
from mq.groups.group_room import holds_nothing
from mq.groups.group_source import GroupSource
from mq.groups.lag import LagMemory
from mq.groups.letter_errands import Bury, LetterErrands, PublishAgain
from mq.groups.message_feed import Feed
from mq.groups.redriver import Chosen
from mq.groups.to_decide import Numbered, ToDecide, slices
from mq.topic.wakeup import Wakeup

IDLE_SECONDS = 5.0
"""A group that no caller has asked for this long, and for which nothing is due, costs no task."""
AHEAD_ROWS = 2_000
"""While consumers come, so many messages are made ready ahead of them."""
MOST_LOOKED_AT_ROWS = 32_000
"""One look reads so many at the most, if most of them wait for others of their keys."""
MOST_RANGES = 100_000
"""A group remembers so many ranges of dead letters that were redriven."""

_log = EventLog(__name__)


_Ranges = Sequence[tuple[int, int]]
Decide = Callable[[Claim, _Ranges], list[Outcome]]
"""What becomes of these ranges of a claim."""
Turn = Callable[[], Awaitable[None]]
"""Waits until other requests were served."""


async def at_once() -> None:
    """Return at once: no other request is served in between."""


class Consuming(NamedTuple):
    """What a consumer does: how many messages it has, and how many of its claims wait for messages."""

    in_flight: int
    waiting: int


@dataclass(slots=True)
class _Waiter:
    """A consumer that waits for messages."""

    most: int
    lease_ms: int
    scattered: bool
    consumer: str
    granted: "asyncio.Future[list[Grant]]"


class QueueGroup:
    """One queue group. All methods belong to the event loop's thread.

    `append` stores records. `source` finds the topic, `feed` its new messages. `bury` stores dead letters,
    `publish_again` publishes them to the topic again. `on_lost` is called once, with the reason, if records do not
    count any more: then this broker is not the coordinator, and its state is worth nothing.
    """

    def __init__(
        self,
        topic: str,
        name: str,
        progress: QueueProgress,
        *,
        clock: Clock,
        append: Append,
        source: GroupSource,
        feed: Feed,
        bury: Bury,
        publish_again: PublishAgain,
        on_lost: Callable[[BaseException], None],
        secret: bytes,
    ) -> None:
        self.topic, self.name = topic, name
        self.source = source
        self.lag_memory, self.letters_seen = LagMemory(), LettersSeen()
        self._clock, self._feed = clock, feed
        self._claims = QueueClaims(progress, now_ms=self._now_ms())
        self.tokens = ClaimTokens(secret, key_of(topic, name), progress.id)
        # Leases of a handover are complete only for the next coordinator. So that one records that it has begun.
        self._must_begin = progress.leases is not None and bool(progress.leases or self._claims.reserve_count)
        self._has_begun = Wakeup()
        self._waiters: deque[_Waiter] = deque()
        # What the record that is on its way exposes, and for which waiter; None: for the next claim.
        self._set_aside: list[tuple[_Waiter | None, Aside]] = []
        self._pace = ClaimPace()
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hands_over = False
        self._records = GroupRecords(topic, name, append=append, on_lost=on_lost, on_end=self._tell_those_who_wait)
        self._errands = LetterErrands(topic, name, clock, self._records, bury=bury, publish_again=publish_again)
        self._redrive_lock = asyncio.Lock()
        self._asked_seconds = clock.monotonic_seconds()

    # -- what consumers ask ----------------------------------------------------------------------------------

    @property
    def progress(self) -> QueueProgress:
        """The state that follows from the records."""
        return self._claims.progress

    def positions(self) -> Mapping[int, int]:
        """Return the first offsets that were not looked at for the group, by segment."""
        return self._feed.reached(self.progress)

    def seen(self, state: State) -> list[Seen]:
        """Return the messages that consumers have, or that wait and were looked at, by segment and offset."""
        return (in_flight if state == "in_flight" else backlog)(self._claims, self._now_ms())

    @property
    def in_flight(self) -> int:
        """How many messages were handed out and are leased still, to any consumer: as many as `seen` shows."""
        return sum(self._claims.running(self._now_ms()).values())

    @property
    def waiting_count(self) -> int:
        """How many consumers wait for messages."""
        return len(self._waiters)

    @property
    def letters_delayed(self) -> tuple[int, str] | None:
        """How many given-up messages have dead letters that cannot be stored, and why; None if they can be stored."""
        why, dying = self._errands.why_not_buried, self.progress.dying
        return None if why is None or not dying else (sum(each.stop - each.start for each in dying), why)

    def consumers(self) -> dict[str, Consuming]:
        """Return the consumers that have messages now, or wait for some, by their names; "" for all without a name.

        Claims left from the coordinator before have no name: leases are written down without one.
        """
        waiting = Counter(waiter.consumer for waiter in self._waiters)
        held = self._claims.running(self._now_ms())
        return {name: Consuming(held.get(name, 0), waiting[name]) for name in {*held, *waiting}}

    async def claim(
        self, most: int, *, lease_ms: int, wait_seconds: float, scattered: bool = False, consumer: str = ""
    ) -> list[Grant]:
        """Lease up to `most` messages to a consumer, as soon as there are any; returns none after `wait_seconds`.

        If they may be `scattered`, a claim has many ranges.

        Raises `SegmentMoved` if this broker does not coordinate the group any more. A cancelled call gets nothing.
        """
        self._check()
        waiter = _Waiter(most, lease_ms, scattered, consumer, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._ask()
        timer = asyncio.create_task(self._wait(wait_seconds, self._feed.started + 1), name=f"claim of {self.name}")
        self._feed.look_again()
        either: list[asyncio.Future[Any]] = [waiter.granted, timer]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            self._distribute()
            if not waiter.granted.done():
                await timer  # raises the error that kept it from looking
            return waiter.granted.result() if waiter.granted.done() else []
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self.take_back(waiter.granted.result())
            raise
        finally:
            timer.cancel()
            if not waiter.granted.done():
                waiter.granted.cancel()
                # What a record exposes for it goes to the next claim.
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    async def _wait(self, seconds: float, look: int) -> None:
        """Wait until the time is up, that look is over, and all messages were given out, also if no call waits."""
        await self._clock.sleep(seconds)
        while not self._may_hand_out:
            await asyncio.shield(self._has_begun.next())
        while self._must_look() and self._feed.finished < look:
            # Others wait for the same: a call that has got messages, and is cancelled here, must not cancel them.
            await asyncio.shield(self._feed.over.next())
        while self._claims.has_news or self._claims.is_storing or self._claims.available_count:
            await asyncio.shield(self._records.news_stored(has_news=not self._claims.is_storing))

    def take_back(self, grants: Sequence[Grant]) -> None:
        """Take these messages back: no consumer has seen them, so they were not handed out."""
        for grant in grants:
            self.take_back_from(grant, grant.start)

    def take_back_from(self, grant: Grant, start: int) -> None:
        """Take back the messages of a grant from `start` on, which no consumer has seen."""
        self._claims.take_back(grant, start)
        self._wake.set()

    def lose(self, grant: Grant, start: int, stop: int) -> None:
        """Drop these messages of a grant, which are gone: retention or a repair has removed them."""
        self._claims.lose(grant, start, stop)
        self._wake.set()

    async def ack(self, parts: Sequence[ToDecide], turn: Turn = at_once) -> list[list[Outcome]]:
        """Ack messages; returns an outcome for each range of each part, accepted or lost, once that is stored.

        If there are many, `turn` is awaited before each part of them is decided.

        Raises `SegmentMoved` if this broker does not coordinate the group any more; then the outcomes are not known.
        Stopped between two turns, some are decided and others are not, as after an answer that was lost. A repeat
        answers those that were decided as the first time.
        """
        return await self._decide(parts, self._claims.ack_all, turn)

    async def release(
        self, parts: Sequence[ToDecide], turn: Turn = at_once, *, giving_back: GivingBack, delay_ms: int | None
    ) -> list[list[Outcome]]:
        """Give messages back. They rest for `delay_ms`, or for the group's back-off. As `ack` otherwise."""

        def release(claim: Claim, ranges: _Ranges) -> list[Outcome]:
            wait_ms = self.progress.settings.backoff_ms(claim.delivery) if delay_ms is None else delay_ms
            due_ms = self._wall_ms() + wait_ms if wait_ms else 0
            found = (self._claims.release(claim, *each, giving_back, due_ms=due_ms) for each in ranges)
            return list(chain.from_iterable(found))

        return await self._decide(parts, release, turn)

    async def extend(self, parts: Sequence[ToDecide], turn: Turn = at_once, *, lease_ms: int) -> list[list[Outcome]]:
        """Make leases run for `lease_ms` from now on. As `ack` otherwise, but nothing is stored."""
        until_ms = self._now_ms() + lease_ms

        def extend(claim: Claim, ranges: _Ranges) -> list[Outcome]:
            return list(chain.from_iterable(self._claims.extend(claim, *each, until_ms) for each in ranges))

        return await self._decide(parts, extend, turn)

    async def _decide(self, parts: Sequence[ToDecide], decide: Decide, turn: Turn) -> list[list[Outcome]]:
        self._check()
        outcomes: list[list[Outcome]] = [[] for _ in parts]
        waiting = list(enumerate(parts))
        while waiting:
            waiting = await self._decide_in_turns(waiting, decide, turn, outcomes)
        return [sorted(each) for each in outcomes]

    async def _decide_in_turns(
        self, parts: Sequence[Numbered], decide: Decide, turn: Turn, outcomes: list[list[Outcome]]
    ) -> list[Numbered]:
        """Decide, and wait until that is stored. Returns the parts that had to wait for a record, to be decided again.

        Asks for the record once all is decided: otherwise each turn would have a record of its own.
        """
        again: list[Numbered] = []
        in_turn = list(slices(parts))
        # Another caller's record may contain the decisions of the first turns.
        stored: dict[asyncio.Future[None], None] = {}
        try:
            for each in in_turn:
                if len(in_turn) > 1:
                    await turn()
                    self._check()
                if self._decide_once(each, decide, outcomes, again):
                    stored[self._news_stored()] = None
        finally:
            if stored:
                self._ask()
        for record in stored:
            await asyncio.shield(record)
        return again

    def _decide_once(
        self, parts: Sequence[Numbered], decide: Decide, outcomes: list[list[Outcome]], again: list[Numbered]
    ) -> bool:
        """Whether a record has to be stored before this is answered."""
        must_store = False
        for index, part in parts:
            claim = part.claim
            if claim is None:
                outcomes[index] += [Outcome(*each, Verdict.LOST) for each in part.all_ranges]
                continue
            for outcome in decide(claim, part.all_ranges):
                if outcome.verdict is Verdict.NEWER:
                    raise self._records.moved()
                must_store |= outcome.verdict in (Verdict.LATER, Verdict.WAIT)
                if outcome.verdict is Verdict.WAIT:
                    again.append((index, ToDecide(claim, outcome.start, outcome.stop)))
                    continue
                verdict = Verdict.LOST if outcome.verdict is Verdict.LOST else Verdict.ACCEPTED
                outcomes[index].append(Outcome(outcome.start, outcome.stop, verdict))
        return must_store

    def _news_stored(self) -> "asyncio.Future[None]":
        """Return a future that is done when all decisions so far are stored."""
        return self._records.news_stored(has_news=self._claims.has_news)

    # -- what coordinators do with groups --------------------------------------------------------------------

    async def configure(self, settings: GroupSettings) -> None:
        """Apply other settings from now on, once they are stored."""
        self._check()
        async with self._records.at_rest():
            await self._records.store(Configured(at=self._wall_ms(), settings=settings.in_force()))
            self.progress.configure(settings)
        self._wake.set()

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
        """Whether no caller has asked for it lately."""
        asked_before_seconds = self._clock.monotonic_seconds() - self._asked_seconds
        return not self._waiters and asked_before_seconds >= IDLE_SECONDS

    async def make_room(self) -> bool:
        """End the group for ever if it holds nothing, once that is stored; returns whether it did.

        A caller that asks for it meanwhile creates another one. That begins where this one did: no message is passed
        by.
        """

        async def holds_nothing_still() -> bool:
            return not (self._waiters or self._claims.has_news) and holds_nothing(self.progress)

        return await self._records.delete(self._wall_ms(), only_if=holds_nothing_still, ask_again=True)

    async def redrive(self, choose: Callable[[Redrives], Awaitable[Chosen]], *, discard: bool = False) -> Chosen:
        """Publish dead letters to the topic again, or drop them with `discard`; returns the chosen ones.

        First stores which they are. Stopped before that, nothing has changed. Stopped after it, the next coordinator
        publishes them, under the same sequence. Raises `BraidError` if an attempt to publish them has failed; they are
        tried again. Raises `Conflict` if there are too many to remember.
        """
        self._check()
        async with self._redrive_lock:
            await self._until_redriven()
            chosen = await choose(self.progress.redrives)
            letters, passed = ([], chosen.letters + chosen.passed) if discard else (chosen.letters, chosen.passed)
            if letters or passed:
                await self._begin_redrive(chosen.topic, letters, passed)
            await self._until_redriven()
            return chosen

    async def _begin_redrive(self, topic: str, letters: list[Done], passed: list[Done]) -> None:
        redrives = self.progress.redrives
        if redrives.range_count > MOST_RANGES:
            raise Conflict(
                "too-many-redrives",
                f"group {self.name!r} has redriven too many dead letters one by one: redrive or discard those between",
            )
        async with self._records.at_rest():
            self._check()
            record = Redriving(
                at=self._wall_ms(), topic=topic, sequence=redrives.next_sequence, letters=letters, passed=passed
            )
            await self._records.store(record)
            self.progress.redrive(record)

    async def _until_redriven(self) -> None:
        while self.progress.redrives.pending is not None:
            self._check()
            attempt = self._errands.attempt()
            self._ask()
            await asyncio.shield(attempt)

    async def reset(self, positions: Positions, *, force: bool) -> QueueProgress:
        """End this incarnation of the group, once that is stored; returns the beginning of the next, at `positions`.

        Without `force`, raises `Conflict` while consumers have messages or wait for some. Always raises it while dead
        letters are on their way: nothing would store them any more. Stopped before the record is stored, nothing has
        changed. Stopped after it, every claim from before is over: in the next incarnation, no message was handed out
        by it.
        """
        self._check()
        async with self._records.at_rest():
            await self._store_decided()
            self._check_may_reset(force=force)
            # A call while the record is on its way would be answered by an incarnation that may be over.
            self._hands_over = True
            group_id = next_id(self.progress.id, self._clock.ulid())
            record = Reset(at=self._wall_ms(), id=group_id, positions=list(positions.items()))
            await self._records.store(record)
            self._records.end(self._records.moved())
            return self.progress.reset(record)

    def _check_may_reset(self, *, force: bool) -> None:
        if self.progress.dying:
            raise Conflict("dead-letters-pending", f"dead letters of group {self.name!r} are being stored; try again")
        if not force and (self._waiters or self._claims.may_be_leased):
            raise Conflict(
                "group-active",
                f"consumers of group {self.name!r} have messages, or wait for some: stop them, and wait until their "
                "leases have run out",
                Remedy("force-consumers"),
            )

    async def hand_over(self) -> None:
        """Hand out nothing more, and write down the leases for the next coordinator.

        Decisions are stored before that: to the next one, a message that is neither leased nor done is ready. Stopped
        before the leases are stored, the next one waits for as long as a lease may run; stopped after it, it knows.
        """
        self._hands_over = True
        for waiter in list(self._waiters):
            self._fail(waiter, SegmentMoved(f"the coordinator of group {self.name!r} hands over"))
        if self._must_begin:
            return  # nothing was handed out: what the one before has written down is still the last record
        async with self._records.at_rest():
            self._claims.withdraw()
            await self._store_decided()
            await self._records.store(Leases(at=self._wall_ms(), leases=self._claims.written_down(self._now_ms())))

    async def close(self) -> None:
        """End; waiting calls get the error that the coordinator has moved."""
        self._records.lose(self._records.moved())
        running = [task for task in (self._running, *self._tasks.values()) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _tell_those_who_wait(self) -> None:
        """Fail waiting calls: records do not count any more."""
        told = self._records.told
        self._errands.end(told)
        for waiter in (*self._waiters, *(each for each, _ in self._set_aside if each is not None)):
            self._fail(waiter, told)
        self._set_aside.clear()
        self._has_begun.wake()
        self._wake.set()

    # -- the loop ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._records.check()
        if self._hands_over:
            raise self._records.moved()

    def _ask(self) -> None:
        """Run, since a caller is interested in the group."""
        self._asked_seconds = self._clock.monotonic_seconds()
        self._wake.set()
        self.run()

    def run(self) -> None:
        """Do what is due, until nothing is due."""
        if self._running is None and self._records.lost is None:
            self._running = asyncio.create_task(self._run(), name=f"group {self.topic}/{self.name}")

    async def _run(self) -> None:
        try:
            await self._begin()
            while self._records.lost is None:
                self._wake.clear()
                if not self._hands_over:
                    self._claims.tick(self._now_ms(), self._wall_ms())
                self._distribute()
                self._withdraw()
                self._begin_storing()
                self._begin_burying()
                self._begin_redriving()
                self._begin_feeding()
                due_ms = self._next_event_ms()
                is_idle = self._is_idle()
                if is_idle and due_ms is None:
                    return
                longest_seconds = inf if is_idle else IDLE_SECONDS
                await self._sleep(longest_seconds if due_ms is None else min(due_ms / 1000, longest_seconds))
        except BraidError as error:
            self._records.lose(error)
        finally:
            self._running = None
            if self._wake.is_set() and self._records.lost is None and not self._hands_over:
                self.run()

    async def _begin(self) -> None:
        if self._claims.must_learn:
            await self._feed.learn(self._claims)
        if self._must_begin:
            async with self._records.at_rest():
                await self._records.store(Taken(at=self._wall_ms()))
                self.progress.take()
                self._must_begin = False
        self._has_begun.wake()

    @property
    def _may_hand_out(self) -> bool:
        return not (self._must_begin or self._claims.must_learn or self._hands_over)

    def _next_event_ms(self) -> int | None:
        """Return the ms from now until there may be something to do; None if time alone changes nothing."""
        now_ms = self._now_ms()
        times = [self._claims.next_event(now_ms, self._wall_ms())]
        if self._waiters and self._claims.available_count and "store" not in self._tasks:
            times.append(self._pace.ms_until_record(now_ms))
        if self._claims.reserve_count:
            times.append(self._pace.ms_until_pause(now_ms))
        return min((each for each in times if each is not None), default=None)

    def _is_idle(self) -> bool:
        asked_before_seconds = self._clock.monotonic_seconds() - self._asked_seconds
        return not self._waiters and not self._tasks and asked_before_seconds >= IDLE_SECONDS

    async def _sleep(self, seconds: float) -> None:
        """Wait until there is something to do, or that long."""
        woken = asyncio.create_task(self._wake.wait())
        timer = asyncio.create_task(self._clock.sleep(seconds))
        try:
            await asyncio.wait([woken, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            timer.cancel()

    def _share(self) -> int:
        """How many messages the next waiter gets: there may be several, and none should get all of a batch."""
        return min(self._waiters[0].most, -(-self._claims.available_count // len(self._waiters)))

    def _distribute(self) -> None:
        """Give away what is exposed on record, as far as that is enough for the waiters."""
        while self._waiters and self._may_hand_out and 0 < self._share() <= self._claims.reserve_count:
            waiter, until_ms = self._waiters[0], self._now_ms() + self._waiters[0].lease_ms
            grants = self._claims.hand_out(
                self._share(), until_ms, scattered=waiter.scattered, consumer=waiter.consumer
            )
            if not grants:
                return
            self._waiters.popleft()
            self._give(waiter, grants)

    def _give(self, waiter: _Waiter, grants: list[Grant]) -> None:
        self._pace.claimed(self._now_ms(), sum(grant.stop - grant.start for grant in grants))
        waiter.granted.set_result(grants)

    def _expose(self) -> None:
        """Expose messages in the next record for all waiters, and ahead of other claims if claims come fast."""
        while self._waiters and self._may_hand_out:
            aside = self._claims.set_aside(self._share())
            if not aside.ranges:
                break
            self._set_aside.append((self._waiters.popleft(), aside))
        now_ms = self._now_ms()
        if self._may_hand_out and self._pace.is_hurried(now_ms):
            ahead = min(self._pace.ahead(now_ms), AHEAD_ROWS) - self._claims.reserve_count
            if ahead > 0 and (aside := self._claims.set_aside(ahead)).ranges:
                self._set_aside.append((None, aside))

    def _withdraw(self) -> None:
        """Expose nothing that no consumer has, once claims pause."""
        if self._may_hand_out and self._claims.reserve_count and self._pace.is_paused(self._now_ms()):
            self._claims.withdraw()

    def _begin_storing(self) -> None:
        claims_go = self._may_hand_out and bool(self._waiters) and self._claims.available_count > 0
        if "store" in self._tasks or not (
            self._claims.has_news or (claims_go and self._pace.may_record(self._now_ms()))
        ):
            return
        self._begin_task("store", self._store_news())

    async def _store_news(self) -> None:
        """Store decisions, unless the leases for the next coordinator are written down already."""
        async with self._records.at_rest():
            if not self._hands_over:
                await self._store_decided()

    async def _store_decided(self) -> None:
        """Store decisions, and then apply them."""
        await self._records.store_news(self._take_news, self._stored)

    def _take_news(self) -> Progress | None:
        is_for_claims = not self._claims.has_news
        self._expose()
        if self._may_hand_out and not self._pace.is_hurried(self._now_ms()):
            self._claims.withdraw()
        if not self._claims.has_news:
            return None
        if is_for_claims:
            self._pace.recorded(self._now_ms())
        return self._claims.take_news(self._wall_ms())

    def _stored(self, news: Progress) -> None:
        """Give the waiters what the stored record exposes.

        Stopped before it is stored, no consumer has got anything. Stopped after it, the next coordinator counts what it
        exposes as handed out.
        """
        self._claims.stored(news)
        set_aside, self._set_aside = self._set_aside, []
        for waiter, aside in set_aside:
            if waiter is None or waiter.granted.done():
                self._claims.put_back(aside)
                continue
            until_ms = self._now_ms() + waiter.lease_ms
            self._give(
                waiter, self._claims.lease(aside, until_ms, scattered=waiter.scattered, consumer=waiter.consumer)
            )

    def _begin_burying(self) -> None:
        if "bury" not in self._tasks and (dying := self._claims.to_bury()) and not self._hands_over:
            self._begin_task("bury", self._errands.bury_all(self.progress, dying, self._buried))

    def _buried(self, dying: Dying) -> None:
        self._claims.bury(dying)
        self._wake.set()

    def _begin_redriving(self) -> None:
        redriving = self.progress.redrives.pending
        if redriving is not None and "redrive" not in self._tasks and not self._hands_over:
            self._begin_task("redrive", self._errands.redrive(self.progress, redriving, lambda: not self._hands_over))

    def _must_look(self) -> bool:
        """Whether there is room for new messages, and few that are ready."""
        ahead = self._claims.fresh_count + self._claims.reserve_count
        return ahead < AHEAD_ROWS // 2 and self._claims.has_room and not self._hands_over

    def _rows_to_look_at(self) -> int:
        """Return as many as it takes for `AHEAD_ROWS` that can be handed out, if the last look was typical."""
        return min(
            round(AHEAD_ROWS / max(self._claims.fresh_part, AHEAD_ROWS / MOST_LOOKED_AT_ROWS)), MOST_LOOKED_AT_ROWS
        )

    def _begin_feeding(self) -> None:
        wanted = bool(self._waiters) or self._clock.monotonic_seconds() - self._asked_seconds < 1.0
        if wanted and self._must_look() and "feed" not in self._tasks and not self._claims.has_news:
            self._begin_task("feed", self._feed_once())
        elif not self._waiters and self._feed.is_waiting and (feeding := self._tasks.get("feed")) is not None:
            feeding.cancel()

    async def _feed_once(self) -> None:
        """Look for new messages; if there are none, wait for some."""
        try:
            if not await self._feed.look(self._claims, self._rows_to_look_at(), self._wall_ms()):
                await self._feed.wait()
        except BraidError as error:
            for waiter in list(self._waiters):
                self._fail(waiter, error)

    def _begin_task(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"{name} of group {self.topic}/{self.name}")
        self._tasks[name] = task

        def ended(task: "asyncio.Task[None]") -> None:
            self._tasks.pop(name, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._records.lose(error)
            self._wake.set()

        task.add_done_callback(ended)

    def _fail(self, waiter: _Waiter, error: Exception) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not waiter.granted.done():
            waiter.granted.set_exception(error)
            waiter.granted.exception()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_seconds() * 1000)

    def _wall_ms(self) -> int:
        return self._clock.now_us() // 1000
