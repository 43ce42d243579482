"""The owner's side of replication: everything a segment accepts goes to each of its followers, in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from filer.clock import comes_within
from filer.next_file import Accepted, rows_of_payloads
from filer.segment_log import SegmentRef
from mq.errors import CopyRefused
from mq.part_batch import Part
from mq.parts import Parts

BATCH_BYTES = 4 * 1024 * 1024
RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS = 0.02, 1.0
# What follows tells a follower what is stored; where nothing follows for so long it is told by itself, or it would
# go on holding that.
TELL_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Followers:
    """The `Replicas` of a segment of ours. One call at a time to each follower; what arrives meanwhile goes next.

    A call whose outcome is not known is repeated: a follower knows by the offsets what it has. A follower that stays
    silent holds acknowledgements up until it answers or the leader gives the segment to others.
    """

    def __init__(self, parts: Parts, ref: SegmentRef, brokers: Sequence[str], version: int) -> None:
        self._on_held: Callable[[int], None] = lambda end: None
        self._on_refused: Callable[[], None] = lambda: None
        self._stored_end = self._held_end = 0
        self._links = [_Link(parts, ref, broker, version, self) for broker in brokers]

    def attach(self, on_held: Callable[[int], None], on_refused: Callable[[], None]) -> None:
        """As `Replicas.attach`."""
        self._on_held, self._on_refused = on_held, on_refused

    def send(self, accepted: Accepted) -> None:
        """As `Replicas.send`."""
        for link in self._links:
            link.send(accepted)

    def stored(self, end: int) -> None:
        """As `Replicas.stored`."""
        self._stored_end = end
        for link in self._links:
            link.skip_stored(end)

    @property
    def in_step(self) -> bool:
        """As `Replicas.in_step`."""
        return all(link.in_step for link in self._links)

    def close(self) -> None:
        """As `Replicas.close`."""
        for link in self._links:
            link.close()

    @property
    def stored_end(self) -> int:
        """Followers need not hold what lies before."""
        return self._stored_end

    def advance(self) -> None:
        """A follower holds more than before."""
        held_end = min(link.held_end for link in self._links)
        if held_end > self._held_end:
            self._held_end = held_end
            self._on_held(held_end)

    def refused(self) -> None:
        """A follower takes no more."""
        self._on_refused()


class _Link:
    """The way to one follower."""

    def __init__(self, parts: Parts, ref: SegmentRef, broker: str, version: int, followers: Followers) -> None:
        self.held_end = self._told_end = 0
        self.in_step = True
        self._parts, self._ref, self._broker, self._version = parts, ref, broker, version
        self._followers = followers
        self._waiting: deque[Accepted] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"replicate {ref.topic}/{ref.segment} to {broker}")

    def send(self, accepted: Accepted) -> None:
        self._waiting.append(accepted)
        self._wake.set()

    def skip_stored(self, end: int) -> None:
        """What is on the store need not be held; the next call says so."""
        while self._waiting and self._waiting[0].end <= end:
            self._waiting.popleft()
        self._wake.set()

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        pause = RETRY_FIRST_SECONDS
        while True:
            await self._await_work()
            try:
                await self._call(self._batch())
                pause = RETRY_FIRST_SECONDS
                self.in_step = True
            except CopyRefused:
                self._followers.refused()
                return
            except Exception as error:
                # Whatever it was: a task that just ended would leave the follower without what comes next.
                self.in_step = False
                _log.debug("%s does not take a copy: %s: %s", self._broker, type(error).__name__, error)
                await self._parts.clock.sleep(pause)
                pause = min(pause * 2, RETRY_LONGEST_SECONDS)

    async def _await_work(self) -> None:
        """Until there is something to send, or the follower has held for a while what is stored."""
        while not self._waiting:
            self._wake.clear()
            if self._told_end >= min(self.held_end, self._followers.stored_end):
                await self._wake.wait()
            elif not await comes_within(self._parts.clock, self._wake, TELL_SECONDS):
                return

    def _batch(self) -> list[Accepted]:
        size_bytes = 0
        batch: list[Accepted] = []
        for accepted in self._waiting:
            if batch and size_bytes + accepted.size_bytes > BATCH_BYTES:
                break
            batch.append(accepted)
            size_bytes += accepted.size_bytes
        return batch

    async def _call(self, batch: Sequence[Accepted]) -> None:
        """Send these, and up to where all is stored."""
        url, stored_end = self._parts.last_url_of(self._broker), self._followers.stored_end
        rows = rows_of_payloads(self._ref, [each.payload for each in batch])
        parts = [Part(e.count, e.size_bytes, e.request, timestamp_us=e.timestamp_us) for e in batch]
        held_end = await self._parts.peers.replicate(
            url,
            self._ref.topic,
            self._ref.segment,
            self._version,
            rows,
            parts,
            base=batch[0].base if batch else stored_end,
            stored_end=stored_end,
        )
        self._told_end = stored_end
        self.held_end = max(self.held_end, held_end)
        while self._waiting and self._waiting[0].end <= self.held_end:
            self._waiting.popleft()
        self._followers.advance()
