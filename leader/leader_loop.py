"""The leader's loop: finish transitions, fail over segments that lost a broker, drain brokers, and rebalance.

Everything it does is a transition, recorded by compare-and-swap and fenced by the store. So a leader that does not know
yet that it was deposed, or two leaders at once, can do the same work twice, but nothing wrong.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Literal, Protocol

from filer import request_ids
from filer.clock import Clock, comes_within
from filer.event_log import EventLog
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import BrokerInfo, Coordinator
from leader.membership.missing_brokers import MARGIN_SHARE, MissingBrokers
from leader.membership.refusing_brokers import RefusingBrokers
from leader.policy.placement import early_orphans, orphans, under_replicated
from leader.policy.rebalancing import rebalance
from leader.topic_states import TopicStates
from leader.traffic.traffic_table import TrafficTable

SWEEP_SECONDS = 30.0
"""All topics are read again when brokers come or go, and also this often, in case an announced change was lost."""
RETRY_SECONDS = 0.5
SETTLE_SECONDS = 2.0
"""Rebalancing waits until membership has not changed for so long: a rolling restart moves segments anyhow."""

LeaderReason = Literal["failover", "drain", "move"]

_log = EventLog(__name__)


class LeaderActions(Protocol):
    """The transitions that a leader asks its broker for."""

    async def finish_transition(self, topic: str) -> TopicState | None:
        """Finish the transition that is under way, if any; the topic's state then, None if there is no topic."""
        ...

    async def give_successors(
        self, topic: str, segments: Sequence[int], reason: LeaderReason, owners: Mapping[int, str]
    ) -> TopicState | None:
        """Replace open segments by successors on live brokers. If `owners` names a broker for one, that gets it.

        Returns the topic's state then, None if there is no topic.
        """
        ...


class LeaderLoop:
    """Acts while this broker leads. All methods belong to the event loop's thread.

    `refusing` are brokers that are announced and yet refuse connections. `on_settled` is called with the name of a
    topic that has changed and needs nothing more.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        catalogue: Catalogue,
        clock: Clock,
        actions: LeaderActions,
        table: TrafficTable,
        refusing: RefusingBrokers,
        *,
        on_settled: Callable[[str], None],
    ) -> None:
        self._coordinator, self._clock, self._actions = coordinator, clock, actions
        self._table, self._refusing, self._on_settled = table, refusing, on_settled
        self._topics = TopicStates(catalogue, table)
        self._missing = MissingBrokers()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._handing_over: set[str] = set()
        self._members: tuple[BrokerInfo, ...] = ()
        self._fit: tuple[BrokerInfo, ...] = ()
        self._members_changed_seconds = self._swept_seconds = -1e9
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Begin the next round soon: brokers may have come or gone."""
        self._wake.set()

    def request_read(self, topic: str) -> None:
        """Read that topic's record soon, and do what it needs."""
        if self._coordinator.leads():
            self._topics.request_read(topic)
        self._wake.set()

    @property
    def states(self) -> Mapping[str, TopicState]:
        """Topics by name as they were last read; none while this broker does not lead."""
        return self._topics.by_name

    def is_free(self, topic: str) -> bool:
        """Whether that topic needs nothing else first, such as a failover of segments of a lost broker."""
        if topic not in self.states or topic in self._tasks or topic in self._topics.unsettled:
            return False
        return (self._missing.ids | self._refusing.gone).isdisjoint(self._topics.names.brokers(topic))

    # -- rounds --------------------------------------------------------------------------------------------

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
            tasks = list(self._tasks.values())
            self._stand_down()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pause(self) -> None:
        """Wait until something may have changed, or until the next round is due."""
        since_change_seconds = self._clock.monotonic_seconds() - self._members_changed_seconds
        is_busy = (
            self._topics.unsettled or self._tasks or self._missing.ids or since_change_seconds < SETTLE_SECONDS + 1
        )
        await comes_within(self._clock, self._wake, RETRY_SECONDS if is_busy else SWEEP_SECONDS / 10)
        self._wake.clear()

    def _stand_down(self) -> None:
        """Forget everything: the next leader reads it from the store. Safe to stop the work at any line."""
        for task in self._tasks.values():
            task.cancel()
        self._topics.clear()
        self._handing_over.clear()
        self._missing.clear()
        self._members = self._fit = ()
        self._swept_seconds = -1e9

    async def _try_round(self) -> None:
        try:
            await self._round()
        except Exception as error:
            # Catch every error: the next round may succeed, and no other broker leads while this one lives.
            _log.warning("leader_round_failed", error=error)

    async def _round(self) -> None:
        now_seconds = self._clock.monotonic_seconds()
        members = tuple(self._coordinator.brokers())
        if members != self._members:
            self._members, self._members_changed_seconds, self._swept_seconds = members, now_seconds, -1e9
        fit = tuple(broker for broker in members if broker.id not in self._refusing.unfit)
        if fit != self._fit:
            self._fit, self._members_changed_seconds = fit, now_seconds
        if now_seconds - self._swept_seconds > SWEEP_SECONDS:
            unread = await self._topics.read_all()
            self._swept_seconds = now_seconds
        else:
            unread = await self._topics.read(self._topics.unsettled)
        self._handing_over &= self.states.keys()
        gone = self._missing.update(
            self._topics.names.named,
            {broker.id for broker in self._members},
            now_seconds=now_seconds,
            margin_seconds=self._coordinator.session_timeout_seconds * MARGIN_SHARE,
        )
        self._settle_all(gone, frozenset(self._refusing.gone), unread)
        # A missing broker may be back in a moment, and segments that need new brokers come first.
        quiet = not self._handing_over and not self._missing.ids and not self._refusing.gone
        if quiet and now_seconds - self._members_changed_seconds >= SETTLE_SECONDS:
            self._rebalance()

    def _settle_all(self, gone: frozenset[str], refusing: frozenset[str], unread: Set[str]) -> None:
        """Settle topics that may need something: those that changed, and those that name lost or draining brokers.

        Leaves out topics that have to be read first: their former state may wrongly show that they need nothing.
        """
        draining = frozenset(broker.id for broker in self._members if broker.draining)
        if draining.issuperset(broker.id for broker in self._fit):
            draining = frozenset()
        for topic in (self._topics.unsettled | self._topics.names.topics(gone | refusing | draining)) - unread:
            if topic in self.states and topic not in self._tasks:
                state = self.states[topic]
                lost = sorted({*orphans(state, gone), *early_orphans(state, gone, refusing, self._refusing.doubtful)})
                self._settle(state, lost, orphans(state, draining))

    def _settle(self, state: TopicState, lost: Sequence[int], leaving: Sequence[int]) -> None:
        """Begin what the topic needs: segments in `lost` have lost a broker, those in `leaving` are to leave one."""
        topic = state.topic
        if state.transition is None and not lost and not leaving:
            self._handing_over.discard(topic)
            if topic in self._topics.unsettled:
                self._topics.unsettled.discard(topic)
                self._on_settled(topic)
            return
        self._topics.unsettled.add(topic)
        self._start(topic, lost or leaving, "failover" if lost else "drain", {})

    def _rebalance(self) -> None:
        """Even out the load of brokers, and give under-replicated segments as many replicas as they should have."""
        busy = self._topics.unsettled | self._tasks.keys()
        plan = rebalance(self._table, self._fit, except_topics=busy)
        fit = sum(not broker.draining for broker in self._fit)
        # The table may know a topic from a transition of this broker before its record was read here.
        for topic in ((plan.keys() | self._topics.names.under_replicated(fit)) & self.states.keys()) - busy:
            owners = plan.get(topic, {})
            if segments := {*owners, *under_replicated(self.states[topic], self._fit)}:
                self._topics.unsettled.add(topic)
                self._start(topic, sorted(segments), "move", owners)

    # -- one topic -----------------------------------------------------------------------------------------

    def _start(self, topic: str, segments: Sequence[int], reason: LeaderReason, owners: Mapping[int, str]) -> None:
        if segments:
            self._handing_over.add(topic)
        task = asyncio.create_task(self._work(topic, segments, reason, owners), name=f"settle {topic}")
        self._tasks[topic] = task
        task.add_done_callback(lambda _: self._done(topic))

    async def _work(self, topic: str, segments: Sequence[int], reason: LeaderReason, owners: Mapping[int, str]) -> None:
        """Finish the transition that is under way, then replace the segments; the next round checks the result.

        If nothing changed, the next round waits: it would find the same again at once.
        """
        before = self.states[topic].version
        try:
            with request_ids.of_work(self._clock):
                state = await self._actions.finish_transition(topic)
                if segments and state is not None:
                    state = await self._actions.give_successors(topic, segments, reason, owners)
        except Exception as error:
            # Catch every error: the other topics go on, and this one is tried again.
            _log.warning("topic_not_settled", topic=topic, reason=reason if segments else None, error=error)
            state = None
        if state is not None and self._coordinator.leads():
            self._topics.apply(state)
        if state is None or state.version <= before:
            await self._clock.sleep(RETRY_SECONDS)

    def _done(self, topic: str) -> None:
        self._tasks.pop(topic, None)
        self._wake.set()
