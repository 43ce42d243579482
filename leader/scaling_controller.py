"""The leader's scaling: each report interval the policy decides on the reported traffic, and transitions follow."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from filer import request_ids
from filer.clock import Clock, comes_within
from filer.event_log import EventLog
from filer.topic.topic_state import Segment, TopicState
from leader.membership.coordinator import Coordinator
from leader.policy.cut_points import Cut, SlotTraffic, cut_hot, equal_parts, pressing
from leader.policy.scaling import ScalingDecision, SplitDecision, decide
from leader.traffic.traffic_table import TrafficTable
from leader.traffic_reports import LedTopics, TrafficReports

HOLD_SECONDS = 60.0
"""A segment in which one slot has too much traffic is left alone for this time."""
MOST_AT_ONCE = 32
"""So many topics are split or merged at the same time, the most urgent first. The others wait for a later round."""

_log = EventLog(__name__)


class ScalingActions(Protocol):
    """Carries out splits and merges."""

    async def slot_traffic(self, topic: str, segment: Segment) -> SlotTraffic | None:
        """The traffic per slot as the segment's owner counts it; None if it does not know, or does not answer."""
        ...

    async def split_or_merge(
        self, topic: str, cuts: Mapping[int, Cut], pairs: Sequence[tuple[int, int]]
    ) -> TopicState | None:
        """Split segments, each at its slots, or, without `cuts`, merge pairs of neighbours, as far as still possible.

        The topic's state then, None if there is no topic any more.
        """
        ...


class ScalingController:
    """Splits and merges while this broker leads. All methods belong to the event loop's thread."""

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        topics: LedTopics,
        actions: ScalingActions,
        table: TrafficTable,
        reports: TrafficReports,
        *,
        interval_seconds: float,
    ) -> None:
        self._coordinator, self._clock, self._topics, self._actions = coordinator, clock, topics, actions
        self._table, self._reports, self._interval_seconds = table, reports, interval_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._minimum_raised = asyncio.Event()

    def topic_changed(self, topic: str) -> None:
        """Decide at once for a topic with a newer state: a minimum that was raised does not wait for the next round."""
        state = self._topics.states.get(topic)
        if state is None:
            return
        self._reports.changed(state)
        if len(state.open_segments) < state.config.min_segments:
            self._minimum_raised.set()

    # -- rounds --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do a round each report interval until cancelled."""
        try:
            while True:
                round_seconds = self._clock.monotonic_seconds() + self._interval_seconds
                while await comes_within(
                    self._clock, self._minimum_raised, round_seconds - self._clock.monotonic_seconds()
                ):
                    self._minimum_raised.clear()
                    self._try_round(minimum_only=True)
                self._try_round()
        finally:
            tasks = list(self._tasks.values())
            self._stand_down()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _try_round(self, *, minimum_only: bool = False) -> None:
        if not self._coordinator.leads():
            self._stand_down()
            return
        try:
            self._round(minimum_only=minimum_only)
        except Exception as error:
            # Catch every error: it must not end scaling for as long as this broker leads.
            _log.warning("scaling_round_failed", error=error)

    def _round(self, *, minimum_only: bool) -> None:
        """Start the most urgent splits and merges.

        It runs in one go, on the event loop that also serves publishes. It passes over 100,000 segments as columns, and
        builds decisions only for as many topics as can start. bench/scaling.py measures how long the loop waits.
        """
        self._reports.refresh()
        for decision in decide(
            self._table,
            now_seconds=self._clock.monotonic_seconds(),
            stale_seconds=self._reports.stale_seconds,
            most=MOST_AT_ONCE - len(self._tasks),
            is_free=lambda topic: topic not in self._tasks and self._topics.is_free(topic),
            minimum_only=minimum_only,
        ):
            self._start(decision)

    def _stand_down(self) -> None:
        """Forget all traffic and cancel the work.

        It is safe to cut off at any line: a transition that has begun is in topic.json, and the next leader finishes
        it.
        """
        for task in self._tasks.values():
            task.cancel()
        self._reports.clear()

    # -- one topic -----------------------------------------------------------------------------------------

    def _start(self, decision: ScalingDecision) -> None:
        task = asyncio.create_task(self._try_work(decision), name=f"scale {decision.topic}")
        self._tasks[decision.topic] = task
        task.add_done_callback(lambda _: self._tasks.pop(decision.topic, None))

    async def _try_work(self, decision: ScalingDecision) -> None:
        try:
            with request_ids.of_work(self._clock):
                await self._work(decision)
        except Exception as error:
            # Either nothing has begun, and a later round decides again; or it has, and finishes as any transition.
            _log.warning("topic_not_scaled", topic=decision.topic, error=error)

    async def _work(self, decision: ScalingDecision) -> None:
        """Split and merge by the decision.

        Stopped before `split_or_merge`, nothing has changed. From then on the transition is in topic.json or it is not;
        if it is, whichever broker leads finishes it.
        """
        state = self._topics.states.get(decision.topic)
        if state is None:
            return
        found = await asyncio.gather(*(self._cut(state, split) for split in decision.splits))
        cuts = {split.segment: cut for split, cut in zip(decision.splits, found, strict=True) if cut.points}
        pairs = [(merge.left, merge.right) for merge in decision.merges]
        # A deposed leader would do no harm, but the next leader has newer reports.
        if (cuts or pairs) and self._coordinator.leads():
            after = await self._actions.split_or_merge(decision.topic, cuts, pairs)
            if after is not None and self._coordinator.leads():
                self._table.apply(after)

    async def _cut(self, state: TopicState, split: SplitDecision) -> Cut:
        """Where to cut a segment; without points if it is gone, or if no known cut helps."""
        segment = state.segment(split.segment)
        if segment is None or segment.state != "open":
            return Cut(())
        slot_traffic = await self._actions.slot_traffic(state.topic, segment)
        if slot_traffic is not None and len(slot_traffic.messages) != segment.stop_slot - segment.start_slot:
            slot_traffic = None
        if not split.by_traffic:
            return Cut(equal_parts(slot_traffic, *segment.range, split.parts, state.config.target))
        if slot_traffic is None:
            # A cut into equal widths may miss the traffic, and its pause would be in vain. The next round asks again.
            return Cut(())
        cut = _cut_hot(state, segment, split, slot_traffic)
        if cut.hot_slot is not None:
            until_seconds = self._clock.monotonic_seconds() + HOLD_SECONDS
            self._table.hold(state.topic, segment.id, cut.hot_slot, until_seconds=until_seconds)
        return cut


def _cut_hot(state: TopicState, segment: Segment, split: SplitDecision, slot_traffic: SlotTraffic) -> Cut:
    traffic = pressing(slot_traffic.messages, slot_traffic.size_bytes, state.config.target)
    return cut_hot(
        traffic, *segment.range, split.parts, most_parts=split.most_parts, observations=slot_traffic.observations
    )
