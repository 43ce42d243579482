"""What a follower does once it has lost touch: it stores what it holds, while that still counts (DESIGN.md §6)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from mq.parts import Parts
from mq.topic_runtime import TopicRuntime

# The owner has this part of a session to store it first. Brokers lose touch when a third of their session is left, and
# others are called gone a margin after its end: the rest of that is for the store.
OWNERS_SHARE = 0.2
SEGMENTS_AT_ONCE = 16

_log = logging.getLogger(__name__)


class RunningTopics(Protocol):
    """The running topics of a broker."""

    @property
    def topics(self) -> Mapping[str, TopicRuntime]:
        """By name."""
        ...


class EarlyFlush:
    """Stores and seals, in their owners' stead, segments of which a broker out of touch holds what the store lacks.

    Others soon call this broker gone, and may never have heard of its address: where the owner is gone too they seal
    without it. Until then every message that was acknowledged as replicated is to be stored. It takes no more copies
    while it is out of touch, so there is an end to it. `take_over` is `TransitionArm.take_over`.
    """

    def __init__(
        self, parts: Parts, topics: RunningTopics, take_over: Callable[[TopicRuntime, int], Awaitable[int]]
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

    async def _try_one(self, topic: str, segment: int) -> None:
        async with self._gate:
            try:
                await self._flush(topic, segment)
            except Exception as error:
                # Whatever it is, it keeps no other copy from being stored, and the next round may succeed.
                _log.warning("the copy of %s/%d is not stored yet: %s: %s", topic, segment, type(error).__name__, error)

    async def _flush(self, topic: str, segment: int) -> None:
        """Drop what the owner has stored; store and seal where that is not all.

        Safe to stop at any line, as `take_over` is: an owner that lives goes on in a successor, and where it does not,
        whoever leads next finds the segment sealed. Who is in touch again leaves it to the leader.
        """
        runtime, copies = self._topics.topics.get(topic), self._parts.copies
        if runtime is None:
            return
        await runtime.refresh()
        copies.drop_stored(topic, segment, (await runtime.index(segment, fresh=True)).end)
        if (topic, segment) in copies.held() and not self._parts.coordinator.in_touch():
            _log.warning("out of touch: storing the copy of %s/%d in its owner's stead", topic, segment)
            copies.drop_stored(topic, segment, await self._take_over(runtime, segment))
