"""The leader's side of scaling: what owners report goes into a table, what the policy decides becomes transitions.

All that is kept here may be lost: a new leader hears of every segment within a report interval, and until then takes
none of them for hot or cold.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from filer.clock import Clock, comes_within
from filer.topic_state import Segment, TopicState
from leader.brokers_wanted import brokers_wanted
from leader.coordinator import Coordinator
from leader.cut_points import Cut, SlotLoads, cut_hot, equal_parts, pressing
from leader.load_averages import RecentLoad, SegmentLoad
from leader.load_table import LoadTable
from leader.scaling import Reshape, Split, decide

STALE_INTERVALS = 5
"""A report that is older than so many intervals counts as none."""
HOLD_SECONDS = 60.0
"""How long a segment is left alone in which one slot carries the load; then it is looked at again."""
MOST_AT_ONCE = 32
"""Topics that are reshaped at the same time; the most urgent come first, the others a round later."""

_log = logging.getLogger(__name__)


class LedTopics(Protocol):
    """The topics that the leader looks after."""

    @property
    def states(self) -> Mapping[str, TopicState]:
        """By name, as far as is known here."""
        ...

    def is_free(self, topic: str) -> bool:
        """Whether nothing else is being done with that topic, or is to be done first."""
        ...

    def look(self, topic: str) -> None:
        """Read that topic's record soon: it has segments that are not known here."""
        ...


class ReshapingArm(Protocol):
    """By which splits and merges are carried out."""

    async def slot_loads(self, topic: str, segment: Segment) -> SlotLoads | None:
        """The load per slot as the segment's owner has seen it; None where it cannot tell, or does not answer."""
        ...

    async def reshape(self, topic: str, cuts: Mapping[int, Cut], pairs: Sequence[tuple[int, int]]) -> TopicState | None:
        """Split segments, each at its slots, or else merge pairs of neighbours, as far as both still can be.

        The topic's state then, None where there is no topic any more.
        """
        ...


class Reshaping:
    """Splits and merges while this broker leads. All methods belong to the event loop's thread."""

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        topics: LedTopics,
        arm: ReshapingArm,
        table: LoadTable,
        *,
        interval_seconds: float,
        segments_per_broker: float,
    ) -> None:
        self._coordinator, self._clock, self._topics, self._arm = coordinator, clock, topics, arm
        self._interval_seconds, self._segments_per_broker = interval_seconds, segments_per_broker
        self._table = table
        self._seen: set[str] = set()
        self._pending_bytes: dict[str, int] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._raised = asyncio.Event()

    # -- what owners say -----------------------------------------------------------------------------------

    def hear(self, broker: str, pending_bytes: int, loads: Sequence[SegmentLoad]) -> bool:
        """Take a broker's report; False, and nothing is kept, where this one does not lead."""
        if not self._coordinator.leads():
            return False
        self._learn_of(loads)
        self._table.report(loads, now_seconds=self._clock.monotonic_seconds())
        self._pending_bytes[broker] = pending_bytes
        return True

    def pending_bytes(self, broker: str) -> int | None:
        """What that broker's front store waited to have stored when it reported last; None as in `load`."""
        return self._pending_bytes.get(broker)

    def load(self, topic: str, segment: int) -> RecentLoad | None:
        """What was last heard of an open segment; None where that is nothing, or this broker does not lead."""
        since_seconds = self._clock.monotonic_seconds() - self._stale_seconds
        return self._table.recent(topic, segment, since_seconds=since_seconds)

    def hot_slot(self, topic: str, segment: int) -> int | None:
        """The slot that carries so much of a segment's load that no split helps, while that load presses."""
        # A hold that has ended is renewed a round later, and a load that comes in bursts presses now and then.
        since_seconds = self._clock.monotonic_seconds() - self._stale_seconds
        return self._table.hot_slot(topic, segment, since_seconds=since_seconds)

    def brokers_wanted(self) -> int:
        """How many brokers the load would like; 0 where this one does not lead."""
        if not self._coordinator.leads():
            return 0
        return brokers_wanted(
            self._table,
            now_seconds=self._clock.monotonic_seconds(),
            stale_seconds=self._stale_seconds,
            brokers=len(self._coordinator.brokers()),
            segments_per_broker=self._segments_per_broker,
        )

    def look(self, topic: str) -> None:
        """That topic has a newer state: a minimum that was raised does not wait for the next round."""
        state = self._topics.states.get(topic)
        if state is not None and len(state.open_segments) < state.config.min_segments:
            self._raised.set()

    # -- rounds --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do a round each report interval until cancelled."""
        try:
            while True:
                round_seconds = self._clock.monotonic_seconds() + self._interval_seconds
                while await comes_within(self._clock, self._raised, round_seconds - self._clock.monotonic_seconds()):
                    self._raised.clear()
                    self._try_round(minimum_only=True)
                self._try_round()
        finally:
            working = list(self._working.values())
            self._stand_down()
            await asyncio.gather(*working, return_exceptions=True)

    @property
    def _stale_seconds(self) -> float:
        return STALE_INTERVALS * self._interval_seconds

    def _try_round(self, *, minimum_only: bool = False) -> None:
        if not self._coordinator.leads():
            self._stand_down()
            return
        try:
            self._round(minimum_only=minimum_only)
        except Exception as error:
            # Whatever it is, it must not end scaling for as long as this broker leads.
            _log.warning("a round of scaling failed: %s: %s", type(error).__name__, error)

    def _round(self, *, minimum_only: bool) -> None:
        """Start what is most urgent.

        It is done in one go, on the loop that also serves publishes: of 100,000 segments columns are gone through, and
        reshapes are made only for as many topics as there is room for. bench/scaling.py shows what the loop waits.
        """
        self._see_all()
        self._forget_the_gone()
        now_seconds = self._clock.monotonic_seconds()
        for reshape in decide(
            self._table,
            now_seconds=now_seconds,
            stale_seconds=self._stale_seconds,
            most=MOST_AT_ONCE - len(self._working),
            is_free=lambda topic: topic not in self._working and self._topics.is_free(topic),
            minimum_only=minimum_only,
        ):
            self._start(reshape)

    def _learn_of(self, loads: Sequence[SegmentLoad]) -> None:
        """Take in what has been read of topics since the last round, as far as these loads are of segments new here."""
        if unknown := self._unknown_topics(loads):
            states = self._topics.states
            for topic in unknown & states.keys():
                self._table.see(states[topic])
                self._seen.add(topic)
            for topic in self._unknown_topics(loads):
                self._topics.look(topic)

    def _unknown_topics(self, loads: Sequence[SegmentLoad]) -> set[str]:
        return {load.topic for load in loads if not self._table.knows(load.topic, load.segment)}

    def _see_all(self) -> None:
        states = self._topics.states
        for topic in self._seen - states.keys():
            self._table.forget(topic)
        for state in states.values():
            self._table.see(state)
        self._seen = set(states)

    def _forget_the_gone(self) -> None:
        live = {broker.id for broker in self._coordinator.brokers()}
        for broker in self._pending_bytes.keys() - live:
            del self._pending_bytes[broker]

    def _stand_down(self) -> None:
        """Forget everything: what is unknown is neither hot nor cold.

        Cutting work off is safe at any line: a transition that has begun is in topic.json, and whoever leads next
        finishes it.
        """
        for task in self._working.values():
            task.cancel()
        self._table.clear()
        self._seen.clear()
        self._pending_bytes.clear()

    # -- one topic -----------------------------------------------------------------------------------------

    def _start(self, reshape: Reshape) -> None:
        task = asyncio.create_task(self._try_work(reshape), name=f"reshape {reshape.topic}")
        self._working[reshape.topic] = task
        task.add_done_callback(lambda _: self._working.pop(reshape.topic, None))

    async def _try_work(self, reshape: Reshape) -> None:
        try:
            await self._work(reshape)
        except Exception as error:
            # Nothing has begun, and a later round decides anew; or it has, and is finished as any transition.
            _log.warning("topic %r is not reshaped yet: %s: %s", reshape.topic, type(error).__name__, error)

    async def _work(self, reshape: Reshape) -> None:
        """Cut and merge as was decided.

        Before the arm is asked nothing has changed, so that stopping there is as if nothing had been decided; from then
        on the arm's transition is in topic.json or it is not, and is finished by whoever leads.
        """
        state = self._topics.states.get(reshape.topic)
        if state is None:
            return
        found = await asyncio.gather(*(self._cut(state, split) for split in reshape.splits))
        cuts = {split.segment: cut for split, cut in zip(reshape.splits, found, strict=True) if cut.points}
        pairs = [(merge.left, merge.right) for merge in reshape.merges]
        # A deposed leader would do no wrong, but the next one has better news.
        if (cuts or pairs) and self._coordinator.leads():
            after = await self._arm.reshape(reshape.topic, cuts, pairs)
            if after is not None and self._coordinator.leads():
                self._table.see(after)

    async def _cut(self, state: TopicState, split: Split) -> Cut:
        """Where to cut a segment; nowhere where it is gone, or no cut would help as far as can be told."""
        segment = state.segment(split.segment)
        if segment is None or segment.state != "open":
            return Cut(())
        seen = await self._arm.slot_loads(state.topic, segment)
        if seen is not None and len(seen.messages) != segment.stop_slot - segment.start_slot:
            seen = None
        if not split.by_load:
            return Cut(equal_parts(seen, *segment.range, split.parts, state.config.target))
        if seen is None:
            # A cut at equal widths may miss the load, and cost a pause for nothing: the next round asks again.
            return Cut(())
        cut = _hot_cut(state, segment, split, seen)
        if cut.hot_slot is not None:
            until_seconds = self._clock.monotonic_seconds() + HOLD_SECONDS
            self._table.hold(state.topic, segment.id, cut.hot_slot, until_seconds=until_seconds)
        return cut


def _hot_cut(state: TopicState, segment: Segment, split: Split, seen: SlotLoads) -> Cut:
    load = pressing(seen.messages, seen.size_bytes, state.config.target)
    return cut_hot(load, *segment.range, split.parts, most_parts=split.most_parts, observations=seen.observations)
