"""The work of a follower that is out of touch, or leaves: it stores its copies while they still count.

See docs/design.md §6.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from filer.clock import Clock
from filer.event_log import EventLog
from leader.membership.coordinator import Coordinator
from leader.transitions import SealedEnd
from mq.replication.replica_buffers import ReplicaBuffers
from mq.topic.topic_runtime import TopicRuntime

# For this share of a session the owner may store the messages itself. A broker is out of touch when a third of its
# session is left, and the others call it gone a margin after the session's end. The rest of that time is for the store.
OWNERS_SHARE = 0.2
SEGMENTS_AT_ONCE = 16

_log = EventLog(__name__)


class EarlyFlush:
    """Stores and seals, in their owners' stead, segments of which this follower holds messages that are not stored.

    It does so while this broker is out of touch. The others soon call it gone, and may never have known its address. If
    the owner is gone too, they seal without it. So every message that was acknowledged as replicated must be stored
    before that. The work ends: a broker that is out of touch takes no more copies.

    It also does so before this broker leaves, for segments that no other broker may hold.

    `topics` are the running topics by name. `take_over` is `SegmentSealer.take_over`.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        coordinator: Coordinator,
        replica_buffers: ReplicaBuffers,
        topics: Mapping[str, TopicRuntime],
        take_over: Callable[[TopicRuntime, int], Awaitable[SealedEnd]],
    ) -> None:
        self._clock, self._coordinator, self._replica_buffers = clock, coordinator, replica_buffers
        self._topics, self._take_over = topics, take_over
        self._wake = asyncio.Event()
        self._gate = asyncio.Semaphore(SEGMENTS_AT_ONCE)

    def wake(self) -> None:
        """Check whether this broker is still in touch."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled. While this broker is out of touch, failed segments are tried again."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while not self._coordinator.in_touch() and self._replica_buffers.held():
                await self._clock.sleep(self._coordinator.session_timeout_seconds * OWNERS_SHARE)
                held = self._replica_buffers.held()
                await asyncio.gather(*(self._try_one(topic, segment) for topic, segment in held))

    async def store_all(self) -> None:
        """Store everything once, in touch or not: messages on the store need no copies."""
        held = self._replica_buffers.held()
        await asyncio.gather(*(self._try_one(topic, segment, leaving=True) for topic, segment in held))

    async def _try_one(self, topic: str, segment: int, *, leaving: bool = False) -> None:
        async with self._gate:
            try:
                await self._flush(topic, segment, leaving=leaving)
            except Exception as error:
                # No failure keeps another copy from being stored, and the next round may succeed.
                _log.warning("copy_not_stored", topic=topic, segment=segment, error=error)

    async def _flush(self, topic: str, segment: int, *, leaving: bool) -> None:
        """Drop messages that the owner has stored. If any are left, store them and seal the segment.

        Safe to stop at any line, as `take_over` is: an owner that is alive continues in a successor. If no owner is
        alive, the next leader finds the segment sealed. A broker that is back in touch, and stays, leaves the segment
        to the leader.
        """
        runtime, buffers = self._topics.get(topic), self._replica_buffers
        if runtime is None:
            return
        await runtime.refresh()
        buffers.drop_stored(topic, segment, (await runtime.reads.index(segment, fresh=True)).end)
        if (topic, segment) in buffers.held() and (leaving or not self._coordinator.in_touch()):
            _log.warning("copy_stored", topic=topic, segment=segment, reason="leaving" if leaving else "out-of-touch")
            buffers.drop_stored(topic, segment, (await self._take_over(runtime, segment)).end_offset)
