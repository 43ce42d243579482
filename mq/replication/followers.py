"""The owner's side of replication: everything a segment accepts goes to each of its followers, in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from filer import request_ids, tracing
from filer.backoff import Backoff
from filer.clock import Clock, comes_within
from filer.event_log import EventLog
from filer.segment.next_file import Accepted, rows_of_payloads
from filer.segment.segment_log import SegmentRef
from filer.tracing import Span
from mq.base.errors import CopyRefused
from mq.peers.part_batch import Part
from mq.peers.peers import Peers

BATCH_BYTES = 4 * 1024 * 1024
RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS = 0.02, 1.0
# Each call also reports to the follower what is stored. If no call follows for so long, one is made for that alone:
# without it the follower would hold stored messages for ever.
STORED_END_SECONDS = 1.0

_log = EventLog(__name__)


class Followers:
    """The `Replicas` of a segment that this broker owns. Messages that arrive during a call go with the next one.

    There is one call at a time to each follower. A call whose outcome is unknown is repeated: the follower knows by the
    offsets which messages it has. A follower that stays silent delays acknowledgements until it answers, or until the
    leader gives the segment to other brokers.

    `version` is that of the topic's record that names the followers. `last_url_of` gives a broker's last address.
    """

    def __init__(
        self,
        ref: SegmentRef,
        brokers: Sequence[str],
        version: int,
        *,
        clock: Clock,
        peers: Peers,
        last_url_of: Callable[[str], str | None],
    ) -> None:
        self._on_held: Callable[[int], None] = lambda end: None
        self._on_refused: Callable[[], None] = lambda: None
        self._stored_end = self._held_end = 0
        self._streams = [
            _ReplicationStream(ref, broker, version, self, clock=clock, peers=peers, last_url_of=last_url_of)
            for broker in brokers
        ]

    def attach(self, on_held: Callable[[int], None], on_refused: Callable[[], None]) -> None:
        """As `Replicas.attach`."""
        self._on_held, self._on_refused = on_held, on_refused

    def send(self, accepted: Accepted) -> None:
        """As `Replicas.send`."""
        for stream in self._streams:
            stream.send(accepted)

    def stored(self, end: int) -> None:
        """As `Replicas.stored`."""
        self._stored_end = end
        for stream in self._streams:
            stream.skip_stored(end)

    @property
    def in_step(self) -> bool:
        """As `Replicas.in_step`."""
        return all(stream.in_step for stream in self._streams)

    def close(self) -> None:
        """As `Replicas.close`."""
        for stream in self._streams:
            stream.close()

    @property
    def stored_end(self) -> int:
        """The offset before which followers need not hold messages."""
        return self._stored_end

    def advance(self) -> None:
        """Note that a follower holds more than before."""
        held_end = min(stream.held_end for stream in self._streams)
        if held_end > self._held_end:
            self._held_end = held_end
            self._on_held(held_end)

    def refused(self) -> None:
        """Note that a follower takes no more."""
        self._on_refused()


class _ReplicationStream:
    """Sends accepted messages to one follower."""

    def __init__(
        self,
        ref: SegmentRef,
        broker: str,
        version: int,
        followers: Followers,
        *,
        clock: Clock,
        peers: Peers,
        last_url_of: Callable[[str], str | None],
    ) -> None:
        self.held_end = self._sent_stored_end = 0
        self.in_step = True
        self._ref, self._broker, self._version = ref, broker, version
        self._followers, self._clock, self._peers, self._last_url_of = followers, clock, peers, last_url_of
        self._waiting: deque[Accepted] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(
            self._run(), name=f"replicate {ref.topic}/{ref.segment} to {broker}", context=request_ids.of_nobody()
        )

    def send(self, accepted: Accepted) -> None:
        self._waiting.append(accepted)
        self._wake.set()

    def skip_stored(self, end: int) -> None:
        """Do not send messages that are on the store. The next call reports that to the follower."""
        while self._waiting and self._waiting[0].end <= end:
            self._waiting.popleft()
        self._wake.set()

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        backoff = Backoff(self._clock, first_seconds=RETRY_FIRST_SECONDS, longest_seconds=RETRY_LONGEST_SECONDS)
        while True:
            await self._await_work()
            try:
                await self._call(self._batch())
                backoff.reset()
                self.in_step = True
            except CopyRefused:
                self._followers.refused()
                return
            except Exception as error:
                # Whatever the error is, the task must go on: else the follower would never get what comes next.
                self.in_step = False
                _log.debug("copy_not_taken", broker=self._broker, error=error)
                await backoff.pause()

    async def _await_work(self) -> None:
        """Wait for something to send, or until the follower has held stored messages for `STORED_END_SECONDS`."""
        while not self._waiting:
            self._wake.clear()
            if self._sent_stored_end >= min(self.held_end, self._followers.stored_end):
                await self._wake.wait()
            elif not await comes_within(self._clock, self._wake, STORED_END_SECONDS):
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
        """Send these messages, and the offset before which everything is stored."""
        url, stored_end = self._last_url_of(self._broker), self._followers.stored_end
        rows = rows_of_payloads(self._ref, [each.payload for each in batch])
        spans = [each.span.follow("replicate", kind="client") for each in batch]
        parts = [_part(each, span) for each, span in zip(batch, spans, strict=True)]
        with tracing.together(spans) as span:
            span.note(segment=self._ref.segment, broker=url or "")
            held_end = await self._peers.replicate(
                url,
                self._ref.topic,
                self._ref.segment,
                self._version,
                rows,
                parts,
                base=batch[0].base if batch else stored_end,
                stored_end=stored_end,
            )
        self._sent_stored_end = stored_end
        self.held_end = max(self.held_end, held_end)
        while self._waiting and self._waiting[0].end <= self.held_end:
            self._waiting.popleft()
        self._followers.advance()


def _part(accepted: Accepted, span: Span) -> Part:
    return Part(
        accepted.count,
        accepted.size_bytes,
        accepted.request,
        timestamp_us=accepted.timestamp_us,
        traces=span.carriers(),
    )
