"""What a follower does once it has lost touch, or leaves: it stores what it holds, while that still counts (§6)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from leader.transitions import SealedEnd
from mq.parts import Parts
from mq.topic_runtime import TopicRuntime

# The owner has this part of a session to store it first. Brokers lose touch when a third of their session is left, and
# others are called gone a margin after its end: the rest of that is for the store.
OWNERS_SHARE = 0.2
SEGMENTS_AT_ONCE = 16

_log = logging.getLogger(__name__)


class EarlyFlush:
    """Stores and seals, in their owners' stead, segments of which a broker out of touch holds what the store lacks.

    Others soon call this broker gone, and may never have heard of its address: where the owner is gone too they seal
    without it. Until then every message that was acknowledged as replicated is to be stored. It takes no more copies
    while it is out of touch, so there is an end to it. The same before it leaves, of what nobody else could hold in its
    place. `topics` are those that run, by name; `take_over` is `TransitionArm.take_over`.
    """

    def __init__(
        self,
        parts: Parts,
        topics: Mapping[str, TopicRuntime],
        take_over: Callable[[TopicRuntime, int], Awaitable[SealedEnd]],
    ) -> None:
        self._parts, self._topics, self._take_over = parts, topics, take_over
        self._wake = asyncio.Event()
        self._gate = asyncio.Semaphore(SEGMENTS_AT_ONCE)

    def look(self) -> None:
        """Touch may have been lost."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. What does not succeed is tried again while this broker is out of touch."""
        coordinator = self._parts.coordinator
        while True:
            await self._wake.wait()
            self._wake.clear()
            while not coordinator.in_touch() and self._parts.copies.held():
                await self._parts.clock.sleep(coordinator.session_timeout_seconds * OWNERS_SHARE)
                await asyncio.gather(*(self._try_one(topic, segment) for topic, segment in self._parts.copies.held()))

    async def store_all(self) -> None:
        """Once, in touch or not: where the store has taken it, nobody needs what this broker holds."""
        held = self._parts.copies.held()
        await asyncio.gather(*(self._try_one(topic, segment, leaving=True) for topic, segment in held))

    async def _try_one(self, topic: str, segment: int, *, leaving: bool = False) -> None:
        async with self._gate:
            try:
                await self._flush(topic, segment, leaving=leaving)
            except Exception as error:
                # Whatever it is, it keeps no other copy from being stored, and the next round may succeed.
                _log.warning("the copy of %s/%d is not stored yet: %s: %s", topic, segment, type(error).__name__, error)

    async def _flush(self, topic: str, segment: int, *, leaving: bool) -> None:
        """Drop what the owner has stored; store and seal where that is not all.

        Safe to stop at any line, as `take_over` is: an owner that lives goes on in a successor, and where it does not,
        whoever leads next finds the segment sealed. Who is in touch again, and stays, leaves it to the leader.
        """
        runtime, copies = self._topics.get(topic), self._parts.copies
        if runtime is None:
            return
        await runtime.refresh()
        copies.drop_stored(topic, segment, (await runtime.index(segment, fresh=True)).end)
        if (topic, segment) in copies.held() and (leaving or not self._parts.coordinator.in_touch()):
            why = "leaving" if leaving else "out of touch"
            _log.warning("%s: storing the copy of %s/%d in its owner's stead", why, topic, segment)
            copies.drop_stored(topic, segment, (await self._take_over(runtime, segment)).end_offset)
