"""When an owner's next file is due: at once for a single message, and at intervals for a stream if puts cost money."""

import asyncio

from filer.clock import Clock, comes_within
from filer.segment.inheritance import Inheritance
from filer.segment.writer.publish_queue import PublishQueue
from filer.segment.writer.replicated_acks import Acknowledgements
from filer.segment.writer.writer_settings import WriterSettings

TRICKLE_BYTES = 64 * 1024
"""A file smaller than this is a small one."""
INHERITING_SECONDS = 0.05


class FlushTimer:
    """Signals to the writer of one segment when to store what is pending.

    `awaited`: publishers were held back until the segment was opened, and all come within a moment. So the first file
    waits up to `INHERITING_SECONDS` for requests with an id, which can be accepted once the predecessors' producer
    windows are there. The second file follows the first one without a pause.
    """

    def __init__(self, clock: Clock, settings: WriterSettings, acks: Acknowledgements, *, awaited: bool) -> None:
        self._clock, self._settings, self._acks, self._awaited = clock, settings, acks, awaited
        # Set once the next file must not wait any longer to share messages.
        self._due = asyncio.Event()
        self._flush_requested = self._ended = False
        self._last_put_seconds = -1e9
        self._last_file_bytes = TRICKLE_BYTES

    def request_flush(self) -> None:
        """From now on no file waits to share messages."""
        self._flush_requested = True
        self._due.set()

    def file_is_full(self) -> None:
        """End the wait of the next file: it is full."""
        self._due.set()

    def end(self) -> None:
        """The segment takes no more messages: from now on no file waits for others."""
        self._ended = True
        self._due.set()

    def stored(self, base: int, sent_seconds: float, size_bytes: int) -> None:
        """Begin the next interval: the file that starts at offset `base` was stored."""
        if base > 0 or not self._awaited:
            self._last_put_seconds = sent_seconds
        self._last_file_bytes = size_bytes

    async def wait_for_windows(self, inheritance: Inheritance, *, is_first_file: bool) -> None:
        """Let requests with an id join the first file: with a put of their own they would wait for two puts."""
        if self._awaited and is_first_file and not self._flush_requested:
            await comes_within(self._clock, inheritance.over, INHERITING_SECONDS)

    async def wait_until_due(self, queue: PublishQueue) -> None:
        """If puts cost money, let the messages of a stream share files. A single message is stored at once."""
        while (
            not self._ended
            and not self._flush_requested
            and queue.size_bytes < self._settings.flush_bytes
            and (left := self._last_put_seconds + self._interval_seconds(queue) - self._clock.monotonic_seconds()) > 0
        ):
            self._due.clear()
            await comes_within(self._clock, self._due, min(left, self._acks.recheck_seconds))

    def _interval_seconds(self, queue: PublishQueue) -> float:
        """The least time between two puts: longer while followers hold the messages and may answer for them."""
        factor = 1.0 if self._last_file_bytes >= TRICKLE_BYTES else self._settings.trickle_factor
        seconds = self._settings.flush_interval_seconds * factor
        if self._acks.allows_delay(queue.pending):
            return max(seconds, self._settings.replicated_flush_interval_seconds)
        return seconds
