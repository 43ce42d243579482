"""Carries out transitions: for this broker, for users, and for the whole cluster while this broker leads."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from filer.clock import Clock
from filer.errors import BraidError
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import Reason, Segment, TopicState
from leader.membership.coordinator import Coordinator
from leader.policy.cut_points import Cut, SlotTraffic
from leader.traffic.traffic_averages import KnownAverages
from leader.traffic.traffic_table import TrafficTable
from leader.transition_runner import Sealer, TransitionRunner
from leader.transitions import (
    Begin,
    SealedEnd,
    begin_adoption,
    begin_deletion,
    begin_replacement,
)
from mq.base.errors import Draining
from mq.metrics.metrics import Metrics
from mq.metrics.topic_families import TRANSITIONS
from mq.topic.topic_registry import TopicRegistry
from mq.traffic.owner_traffic import OwnerTraffic
from mq.transitions.segment_placement import SegmentPlacement
from mq.transitions.state_broadcast import StateBroadcast
from mq.transitions.unsealable_segments import UnsealableSegments


class TransitionExecutor:
    """Runs transitions, one at a time per topic in this process; compare-and-swap arbitrates between brokers.

    It is the `LeaderActions` and the `ScalingActions` of the leader. Every transition goes the same way: a method here
    returns how to begin it, `change` waits for the topic's lock, `_run` makes the `TransitionRunner` record it in
    topic.json and the `sealer` seal its segments, and `broadcast` sends the state to the other brokers.

    Nothing begins once `draining` is set. `on_unfinished` is called with the topic's name when a transition may have
    begun and did not finish.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        catalogue: Catalogue,
        coordinator: Coordinator,
        metrics: Metrics,
        topics: TopicRegistry,
        draining: asyncio.Event,
        table: TrafficTable,
        placement: SegmentPlacement,
        sealer: Sealer,
        broadcast: StateBroadcast,
        owner_traffic: OwnerTraffic,
        on_unfinished: Callable[[str], None],
    ) -> None:
        self._clock, self._coordinator, self._metrics, self._topics = clock, coordinator, metrics, topics
        self._draining, self._table, self._placement = draining, table, placement
        self._broadcast, self._owner_traffic, self._on_unfinished = broadcast, owner_traffic, on_unfinished
        self._unsealable = UnsealableSegments(clock, topics)
        self._runner = TransitionRunner(catalogue, sealer, clock, self._unsealable.left_out)
        self._locks: dict[str, asyncio.Lock] = {}

    async def slot_traffic(self, topic: str, segment: Segment) -> SlotTraffic | None:
        """As `ScalingActions.slot_traffic`."""
        return await self._owner_traffic.slot_traffic(topic, segment)

    # -- what a transition is for --------------------------------------------------------------------------

    async def delete(self, topic: str) -> None:
        """Seal everything and leave a tombstone."""
        async with self.lock(topic):
            state = await self._run(topic, self._begin_deletion)
            while state is not None and not state.deleted:
                state = await self._run(topic, self._begin_deletion)

    def _begin_deletion(self, state: TopicState) -> TopicState | None:
        return begin_deletion(state, now_us=self._clock.now_us())

    async def give_successors(
        self, topic: str, segments: Sequence[int], reason: Reason, owners: Mapping[int, str] | None = None
    ) -> TopicState | None:
        """As `LeaderActions.give_successors`. A live owner that does not drain keeps segments not in `owners`."""
        runtime = self._topics.get(topic)
        known: Mapping[int, KnownAverages] = {}
        if runtime is not None and reason in ("move", "drain"):
            known = await self._owner_traffic.collect(runtime.state, segments)
        await self._unsealable.look_again(topic)
        state = await self.change(topic, lambda state: self._begin_replacement(state, segments, reason, owners))
        if state is not None and known:
            self._broadcast.start(self._owner_traffic.deliver(state, known))
        return state

    async def repair(self, topic: str, is_orphan: Callable[[Segment], bool], reason: Reason) -> None:
        """Finish the transition that is under way, then give each orphaned open segment a successor.

        Safe to stop anywhere, and to repeat by any broker: both are transitions, and so is each of their steps. Raises
        `CorruptFile` if a segment cannot be sealed, once all others have their successors.
        """
        await self._unsealable.look_again(topic)
        async with self.lock(topic):
            state = await self._run(topic, _nothing)
            if state is not None and (orphans := [s.id for s in state.open_segments if is_orphan(s)]):
                await self._run(topic, lambda state: self._begin_replacement(state, orphans, reason, None))
                self._unsealable.check(topic, orphans)

    def _begin_replacement(
        self, state: TopicState, segments: Sequence[int], reason: Reason, owners: Mapping[int, str] | None
    ) -> TopicState | None:
        sealing = [s for s in state.open_segments if s.id in segments and not self._unsealable.has(state.topic, s.id)]
        brokers_for = self._placement.brokers_for_successors(state, sealing, owners)
        if brokers_for is None:
            return None
        return begin_replacement(state, [s.id for s in sealing], brokers_for, reason, now_us=self._clock.now_us())

    async def split_or_merge(
        self, topic: str, cuts: Mapping[int, Cut], pairs: Sequence[tuple[int, int]]
    ) -> TopicState | None:
        """As `ScalingActions.split_or_merge`.

        Safe to stop at any line, as `change`: a retry leaves out segments that were sealed.
        """
        return await self.change(
            topic,
            lambda state: self._placement.begin_split_or_merge(state, cuts, pairs, now_us=self._clock.now_us()),
        )

    async def adopt_load(self, topic: str, load_id: str, ends: Mapping[int, SealedEnd]) -> TopicState | None:
        """Adopt a bulk load's segments, which were checked and sealed at these ends; returns the state after that.

        The state says whether the load was adopted. Safe to stop at any line, as `change`: the record in topic.json
        holds the ends, and the load's files are not needed again. The owner of an open segment keeps the successor,
        unless that broker is gone or drains.
        """
        return await self.change(topic, lambda state: self._begin_adoption(state, load_id, ends))

    def _begin_adoption(self, state: TopicState, load_id: str, ends: Mapping[int, SealedEnd]) -> TopicState | None:
        brokers_for = self._placement.brokers_for_successors(state, state.open_segments)
        if brokers_for is None:
            return None
        return begin_adoption(state, load_id, ends, brokers_for, now_us=self._clock.now_us())

    async def finish_transition(self, topic: str) -> TopicState | None:
        """As `LeaderActions.finish_transition`."""
        return await self.change(topic, _nothing)

    # -- how it is carried out -----------------------------------------------------------------------------

    async def change(self, topic: str, begin: Begin) -> TopicState | None:
        """Begin a transition, unless another one is under way; finish the one that is. None if there is no topic.

        Stopped at any line, it has begun or it has not: that is one compare-and-swap of topic.json. The record there
        names the segments to seal and all successors with their ids. Any broker that finds it finishes it and opens no
        other successors.
        """
        async with self.lock(topic):
            return await self._run(topic, begin)

    def lock(self, topic: str) -> asyncio.Lock:
        """Return the lock to hold for changes of a topic's record in this process."""
        return self._locks.setdefault(topic, asyncio.Lock())

    async def _run(self, topic: str, begin: Begin) -> TopicState | None:
        """Run a transition with the topic's lock held, then apply the state here and broadcast it."""
        if self._draining.is_set():
            raise Draining("this broker is shutting down: ask another, or wait until it is back")
        begun: TopicState | None = None

        def begin_expected(state: TopicState) -> TopicState | None:
            nonlocal begun
            begun = begin(state)
            if begun is not None:
                self._table.expect(begun)
            return begun

        before = self._topics.get(topic)
        version_before = before.state.version if before is not None else None
        try:
            state = await self._runner.run(topic, begin_expected)
        except BraidError:
            # It may have begun, and its segments take no more messages: it must not wait for the next start.
            self._on_unfinished(topic)
            raise
        finally:
            self._table.release(topic)
        if state is not None:
            self._topics.apply(state)
            if self._coordinator.leads():
                self._table.apply(state)
            if state.version != version_before:
                self._broadcast.broadcast(state)
        # Once the state is applied: the deletion of a topic is not counted in series that end with it.
        self._count(topic, begun)
        return state

    def _count(self, topic: str, begun: TopicState | None) -> None:
        if begun is not None and begun.transition is not None:
            self._metrics.topics.of(topic).count(TRANSITIONS, label=begun.transition.reason)


def _nothing(state: TopicState) -> TopicState | None:
    """A `Begin` that begins nothing: a transition under way is finished."""
    return None
