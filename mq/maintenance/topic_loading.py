"""Reads the topics of a store in the background, after the start of a broker without a cluster."""

import asyncio
from collections import deque

from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import BraidError, UnreadableObject
from filer.event_log import EventLog
from filer.topic.catalogue import Catalogue
from mq.topic.topic_registry import TopicRegistry

AT_ONCE = 8
REST = 4.0
"""Pause for this many times as long as a topic took to read: requests come first."""

_log = EventLog(__name__)


class TopicLoading:
    """Opens every topic, at a bounded rate, so that retention, upkeep and metrics cover all of them.

    A start does not wait for it: a request for a topic that is not read yet makes it be read at once. Nothing is
    written. At most `at_once` topics are read at the same time.
    """

    def __init__(self, clock: Clock, catalogue: Catalogue, topics: TopicRegistry, *, at_once: int) -> None:
        self._clock, self._catalogue, self._topics = clock, catalogue, topics
        self._at_once = min(at_once, AT_ONCE)
        self._waiting: deque[str] = deque()
        self._loading = 0
        self._listed = False

    @property
    def left(self) -> int | None:
        """How many topics are still to be read; None until the names are known."""
        return len(self._waiting) + self._loading if self._listed else None

    async def run(self) -> None:
        """Read all topics, until they are read or this is cancelled. A topic that cannot be read keeps no other."""
        backoff = Backoff(self._clock)
        while not self._listed:
            try:
                self._waiting.extend(name for name in await self._catalogue.names() if name not in self._topics)
                self._listed = True
            except BraidError as error:
                _log.warning("topics_not_listed", error=error)
                await backoff.pause()
        await asyncio.gather(*(self._load_some() for _ in range(self._at_once)))

    async def _load_some(self) -> None:
        backoff = Backoff(self._clock)
        while self._waiting:
            name = self._waiting.popleft()
            began_seconds = self._clock.monotonic_seconds()
            self._loading += 1
            try:
                if name not in self._topics:
                    await self._topics.refresh(name)
            except UnreadableObject:
                pass  # the catalogue reports it, and it is read again until it is repaired
            except Exception as error:
                # Catch every error: this topic is tried again after the others.
                _log.warning("topic_unreadable", topic=name, error=error)
                self._waiting.append(name)
                await backoff.pause()
            finally:
                self._loading -= 1
            await self._clock.sleep((self._clock.monotonic_seconds() - began_seconds) * REST)
