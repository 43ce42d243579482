"""What the leader does all day: finish transitions, fail over what has lost a broker, drain, and spread the load.

Whatever it does is a transition, recorded by compare-and-swap and fenced by the store, so a leader that does not know
yet that it has been deposed, or two at once, can do the same work twice but nothing wrong.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Literal, Protocol

from filer.catalogue import Catalogue
from filer.clock import Clock, comes_within
from filer.errors import BraidError, CorruptFile
from filer.topic_state import TopicState
from leader.broker_names import BrokerNames
from leader.coordinator import BrokerInfo, Coordinator
from leader.load_table import LoadTable
from leader.placement import orphans, thin
from leader.spreading import moves

# All topics are looked at when brokers come and go, and as often as this in case that news was lost.
SWEEP_SECONDS = 30.0
RETRY_SECONDS = 0.5
# The load is spread only when membership has been quiet for as long: a rolling restart moves things anyhow.
SETTLE_SECONDS = 2.0
# What has left is believed to be gone this part of a session later: its own deadline lies well before that.
MARGIN_SHARE = 0.1
READS_AT_ONCE = 16

LeaderReason = Literal["failover", "drain", "move"]

_log = logging.getLogger(__name__)


class Arm(Protocol):
    """By which a leader acts: the broker that it is."""

    async def finish_transition(self, topic: str) -> TopicState | None:
        """Bring a transition that is under way to its end; the topic's state then, None where there is no topic."""
        ...

    async def give_successors(
        self, topic: str, segments: Sequence[int], reason: LeaderReason, owners: Mapping[int, str]
    ) -> TopicState | None:
        """Replace open segments by successors on live brokers, where `owners` says so on those."""
        ...


class Leading:
    """Acts while this broker leads. All methods belong to the event loop's thread.

    `on_settled` is called with the name of a topic that has changed and needs nothing more to be done.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        catalogue: Catalogue,
        clock: Clock,
        arm: Arm,
        table: LoadTable,
        *,
        on_settled: Callable[[str], None],
    ) -> None:
        self._coordinator, self._catalogue, self._clock, self._arm = coordinator, catalogue, clock, arm
        self._table, self._on_settled = table, on_settled
        self._states: dict[str, TopicState] = {}
        self._names = BrokerNames()
        self._unsettled: set[str] = set()
        # Of these more has been heard since the last read began: what it found may be older.
        self._heard: set[str] = set()
        self._working: dict[str, asyncio.Task[None]] = {}
        self._missed_seconds: dict[str, float] = {}
        self._handing_over: set[str] = set()
        self._members: tuple[BrokerInfo, ...] = ()
        self._changed_seconds = self._swept_seconds = -1e9
        self._wake = asyncio.Event()

    def look(self, topic: str | None = None) -> None:
        """Look soon: at that topic, or at who is there."""
        if topic is not None and self._coordinator.leads():
            self._unsettled.add(topic)
            self._heard.add(topic)
        self._wake.set()

    @property
    def states(self) -> Mapping[str, TopicState]:
        """Topics by name as they were last read; none while this broker does not lead."""
        return self._states

    def is_free(self, topic: str) -> bool:
        """Whether nothing else is to be done with that topic first, such as failing over what has lost a broker."""
        state = self._states.get(topic)
        if state is None or topic in self._working or topic in self._unsettled:
            return False
        return self._missed_seconds.keys().isdisjoint(self._names.brokers(topic))

    async def run(self) -> None:
        """Do rounds until cancelled."""
        try:
            while True:
                await self._pause()
                if self._coordinator.leads():
                    await self._try_round()
                else:
                    self._stand_down()
        finally:
            working = list(self._working.values())
            self._stand_down()
            await asyncio.gather(*working, return_exceptions=True)

    async def _pause(self) -> None:
        """Until something may have changed, or until it is time to look anyhow."""
        seconds = RETRY_SECONDS if self._busy else SWEEP_SECONDS / 10
        await comes_within(self._clock, self._wake, seconds)
        self._wake.clear()

    @property
    def _busy(self) -> bool:
        waiting_to_spread = self._clock.monotonic_seconds() - self._changed_seconds < SETTLE_SECONDS + 1
        return bool(self._unsettled or self._working or self._missed_seconds or waiting_to_spread)

    def _stand_down(self) -> None:
        """Forget everything: whoever leads next reads it from the store. Cutting work off is safe at any line."""
        for task in self._working.values():
            task.cancel()
        self._states.clear()
        self._names = BrokerNames()
        self._unsettled.clear()
        self._heard.clear()
        self._handing_over.clear()
        self._missed_seconds.clear()
        self._members = ()
        self._swept_seconds = -1e9

    async def _try_round(self) -> None:
        try:
            await self._round()
        except Exception as error:
            # Whatever it is, the next round may succeed; nobody else leads while this broker lives.
            _log.warning("the leader's round failed: %s: %s", type(error).__name__, error)

    async def _round(self) -> None:
        now_seconds = self._clock.monotonic_seconds()
        members = tuple(self._coordinator.brokers())
        if members != self._members:
            self._members, self._changed_seconds, self._swept_seconds = members, now_seconds, -1e9
        if now_seconds - self._swept_seconds > SWEEP_SECONDS:
            # A listing may be of a moment ago; news of what is not in it are not to be taken for read.
            unread = await self._read(dict.fromkeys((*await self._catalogue.names(), *self._unsettled)))
            self._swept_seconds = now_seconds
        else:
            unread = await self._read(self._unsettled)
        self._settle_all(self._gone(now_seconds), unread)
        # Whoever is missed may be back in a moment; and what changes hands has to find its place first.
        quiet = not self._handing_over and not self._missed_seconds
        if quiet and now_seconds - self._changed_seconds >= SETTLE_SECONDS:
            self._spread()

    async def _read(self, topics: Iterable[str]) -> Set[str]:
        """Take the newest state of these topics; those that have to be read again, which keep the others from nothing.

        They could not be read, or more was heard of them meanwhile.
        """
        gate = asyncio.Semaphore(READS_AT_ONCE)
        unread: set[str] = set()
        self._heard.clear()

        async def one(topic: str) -> None:
            async with gate:
                try:
                    record = await self._catalogue.read(topic)
                except BraidError as error:
                    _log.warning("topic %r cannot be looked after: %s: %s", topic, type(error).__name__, error)
                    unread.add(topic)
                    # What is damaged stays so: the sweeps will do for it.
                    if not isinstance(error, CorruptFile):
                        self._unsettled.add(topic)
                    return
            if record is not None:
                self._take(record.state)
            else:
                self._forget(topic)

        await asyncio.gather(*(one(topic) for topic in list(topics)))
        return unread | self._heard

    def _take(self, state: TopicState) -> None:
        known = self._states.get(state.topic)
        if known is None or known.version < state.version:
            self._states[state.topic] = state
            self._table.see(state)
            self._names.see(state)
            if state.transition is not None:
                self._unsettled.add(state.topic)

    def _forget(self, topic: str) -> None:
        self._states.pop(topic, None)
        self._table.forget(topic)
        self._names.forget(topic)
        self._unsettled.discard(topic)
        self._handing_over.discard(topic)

    def _gone(self, now_seconds: float) -> frozenset[str]:
        """Brokers that segments name, that are not announced, and have not been for the margin."""
        live = {broker.id for broker in self._members}
        named = self._names.named
        for broker in [b for b in self._missed_seconds if b in live or b not in named]:
            del self._missed_seconds[broker]
        for broker in named - live:
            self._missed_seconds.setdefault(broker, now_seconds)
        margin_seconds = self._coordinator.session_timeout_seconds * MARGIN_SHARE
        return frozenset(b for b, since in self._missed_seconds.items() if now_seconds - since >= margin_seconds)

    def _settle_all(self, gone: frozenset[str], unread: Set[str]) -> None:
        """Look at the topics that may need something: those with news, and those that name who is gone or drains.

        Not at those that have to be read first: by what was known before they might need nothing.
        """
        draining = frozenset(broker.id for broker in self._members if broker.draining)
        if len(draining) == len(self._members):
            draining = frozenset()
        for topic in (self._unsettled | self._names.topics(gone | draining)) - unread:
            if topic in self._states and topic not in self._working:
                self._settle(topic, self._states[topic], gone, draining)

    def _settle(self, topic: str, state: TopicState, gone: frozenset[str], draining: frozenset[str]) -> None:
        """Begin what the topic needs."""
        lost, leaving = orphans(state, gone), orphans(state, draining)
        if state.transition is None and not lost and not leaving:
            self._handing_over.discard(topic)
            if topic in self._unsettled:
                self._unsettled.discard(topic)
                self._on_settled(topic)
            return
        self._unsettled.add(topic)
        self._start(topic, lost or leaving, "failover" if lost else "drain", {})

    def _spread(self) -> None:
        """Even out what brokers carry, and bring segments that lack replicas to as many as they are to have."""
        busy = self._unsettled | self._working.keys()
        plan = moves(self._table, self._members, except_topics=busy)
        fit = sum(not broker.draining for broker in self._members)
        # The table may know of a topic from the arm before its record has been read here.
        for topic in ((plan.keys() | self._names.lacking(fit)) & self._states.keys()) - busy:
            owners = plan.get(topic, {})
            if segments := {*owners, *thin(self._states[topic], self._members)}:
                self._unsettled.add(topic)
                self._start(topic, sorted(segments), "move", owners)

    def _start(self, topic: str, segments: Sequence[int], reason: LeaderReason, owners: Mapping[int, str]) -> None:
        if segments:
            self._handing_over.add(topic)
        task = asyncio.create_task(self._work(topic, segments, reason, owners), name=f"settle {topic}")
        self._working[topic] = task
        task.add_done_callback(lambda _: self._done(topic))

    async def _work(self, topic: str, segments: Sequence[int], reason: LeaderReason, owners: Mapping[int, str]) -> None:
        """First whatever is under way, then what this look at it found; the next look sees what that came to.

        Where it came to nothing the next look waits, or it would find the same again at once.
        """
        before = self._states[topic].version
        try:
            state = await self._arm.finish_transition(topic)
            if segments and state is not None:
                state = await self._arm.give_successors(topic, segments, reason, owners)
        except Exception as error:
            # Whatever it is, the other topics are settled meanwhile, and this one is tried again.
            _log.warning("topic %r is not settled yet: %s: %s", topic, type(error).__name__, error)
            state = None
        if state is not None and self._coordinator.leads():
            self._take(state)
        if state is None or state.version <= before:
            await self._clock.sleep(RETRY_SECONDS)

    def _done(self, topic: str) -> None:
        self._working.pop(topic, None)
        self._wake.set()
