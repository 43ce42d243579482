"""This broker as a member of its cluster: it joins, hands over its segments, takes part again, drains."""

import asyncio
from dataclasses import replace

from filer.clock import Clock
from filer.event_log import EventLog
from leader.membership.coordinator import BrokerInfo, Coordinator
from mq.base.errors import Draining, NoOtherBroker
from mq.limits.reads import Reads
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.transitions.early_flush import EarlyFlush

HAND_OVER_SHARE = 0.5
"""The part of the drain timeout that others have to take over."""
HAND_OVER_STEP_SECONDS = 0.02
HAND_OVER_REST = 4.0
"""Pause for this many times as long as counting took.

Counting 100,000 segments takes some 100 ms, on the event loop that also seals them.
"""

_log = EventLog(__name__)


class Drainer:
    """Hands over this broker's segments, and stores what it has accepted before it ends.

    A broker that is `clustered` asks the leader to give its segments to others. `draining` is set once it accepts
    nothing new.
    """

    def __init__(
        self,
        clock: Clock,
        coordinator: Coordinator,
        topics: TopicRegistry,
        reads: Reads,
        early_flush: EarlyFlush,
        draining: asyncio.Event,
        *,
        broker: str,
        cluster: str,
        clustered: bool,
        timeout_seconds: float,
    ) -> None:
        self._clock, self._coordinator, self._topics, self._reads = clock, coordinator, topics, reads
        self._early_flush, self._draining = early_flush, draining
        self._broker, self._cluster, self._clustered = broker, cluster, clustered
        self._timeout_seconds = timeout_seconds
        self._info: BrokerInfo | None = None
        self._ending = False

    async def join(self, info: BrokerInfo) -> None:
        """Announce this broker to the cluster."""
        self._info = info
        await self._coordinator.join(info)

    async def hand_over_to_others(self) -> int:
        """As `hand_over`. Raises `NoOtherBroker`, and changes nothing, if no other broker can take over."""
        if self._clustered and not self._coordinator.in_touch():
            raise NoOtherBroker(
                f"{self._broker} has lost ZooKeeper, without which no leader gives its segments to others: bring "
                "ZooKeeper back, and drain again"
            )
        if not self._others():
            raise NoOtherBroker(
                f"no other broker could take over what {self._broker} owns: {self._why_alone()}; SIGTERM stops it all "
                "the same, and its segments are taken up at the next start"
            )
        return await self.hand_over()

    async def hand_over(self) -> int:
        """Make the leader give this broker's segments to others, and no new ones to it.

        Returns how many segments are still to be handed over. Segments that it follows count: it may hold the only
        other copy of messages that their owners have not stored. Segments that it owns count until their successors are
        open, even if they are sealed or lost: publishers wait for the successors, and if this broker leads, no other
        broker opens them.
        """
        if self._info is not None and not self._info.draining and self._clustered:
            await self.join(replace(self._info, draining=True))
            _log.info("drain_began", broker=self._broker, segments=self.segments_owned)
        return sum(self._segments_left(runtime) for runtime in self._topics.values())

    async def take_part_again(self) -> int:
        """Take back a hand-over: the leader may give this broker segments again. Returns how many it owns.

        Segments that others have taken over stay theirs until rebalancing moves them. Does nothing if no hand-over was
        requested. Raises `Draining` while the process ends.
        """
        if self._ending:
            raise Draining(f"{self._broker} is shutting down: start it again instead")
        if self._info is not None and self._info.draining:
            await self.join(replace(self._info, draining=False))
            _log.info("drain_taken_back", broker=self._broker, segments=self.segments_owned)
        return self.segments_owned

    @property
    def segments_owned(self) -> int:
        """Open segments that this broker writes."""
        return sum(
            writer.is_open or writer.is_sealing
            for runtime in self._topics.values()
            for writer in runtime.writers.values()
        )

    async def drain(self) -> None:
        """Hand over, accept nothing new, store what was accepted: a clean end leaves nothing to fail over.

        Segments that no broker takes over are sealed by the next start, or by the next broker. Before this returns,
        every accepted message is stored and answered. It is safe to cancel: unanswered messages were never promised.
        """
        self._ending = True
        began_seconds = self._clock.monotonic_seconds()
        if self._clustered:
            await self._hand_over_in_time()
        self._draining.set()
        self._reads.end()
        # From here on this broker carries out no transition. Requests here, and at all other brokers, may wait for one,
        # and no other broker leads while this one does. Unfinished transitions are in topic.json for the next leader.
        self._coordinator.resign()
        # A process that ends without others seals nothing: its observers' last words are stored with the rest.
        if last_words := [word for runtime in list(self._topics.values()) for word in runtime.last_words()]:
            await asyncio.gather(*last_words)
        # A read may open another topic meanwhile, which has nothing to store.
        await asyncio.gather(*(runtime.flush() for runtime in list(self._topics.values())))
        # This broker may hold the only copies of segments that no broker has taken over: the owner and the other
        # followers may be gone.
        await self._early_flush.store_all()
        duration_seconds = round(self._clock.monotonic_seconds() - began_seconds, 3)
        _log.info("broker_drained", broker=self._broker, duration_seconds=duration_seconds)

    def _others(self) -> list[BrokerInfo]:
        """Brokers that could take over from this one."""
        return [b for b in self._coordinator.brokers() if b.id != self._broker and not b.draining]

    def _why_alone(self) -> str:
        if not self._clustered:
            return "it runs without ZooKeeper, as a cluster of its own"
        return f"start another broker in cluster {self._cluster!r} first"

    def _segments_left(self, runtime: TopicRuntime) -> int:
        """Return how many segments name this broker in the record or its transition, or are written by it."""
        under_way = runtime.state.transition
        segments = (*runtime.state.open_segments, *(under_way.open if under_way is not None else ()))
        named = {segment.id for segment in segments if self._broker in segment.brokers}
        return len(named | {i for i, writer in runtime.writers.items() if writer.is_open or writer.is_sealing})

    async def _hand_over_in_time(self) -> None:
        """Wait for others to take over, for a part of the drain timeout. What remains is failed over.

        A broker that is out of touch may be in touch again soon. It waits for one session: after that its segments are
        failed over anyway.
        """
        counted_seconds = touched_seconds = self._clock.monotonic_seconds()
        deadline = counted_seconds + self._timeout_seconds * HAND_OVER_SHARE
        while await self.hand_over() and counted_seconds < deadline:
            if self._coordinator.in_touch():
                touched_seconds = counted_seconds
            is_lost = counted_seconds - touched_seconds > self._coordinator.session_timeout_seconds
            if is_lost or not self._others():
                return
            took_seconds = self._clock.monotonic_seconds() - counted_seconds
            await self._clock.sleep(max(HAND_OVER_STEP_SECONDS, took_seconds * HAND_OVER_REST))
            counted_seconds = self._clock.monotonic_seconds()
