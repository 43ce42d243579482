"""Components that go with the ownership of a topic's segments: they begin, end and have a last word with each."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from filer.clock import Clock, comes_within
from filer.event_log import EventLog
from filer.segment.writer.segment_writer import SegmentWriter

LAST_WORD_SECONDS = 2.0
"""A last word may take so long. A caller that asks the owner to seal waits at least twice as long, and repeats it."""

_log = EventLog(__name__)


class SegmentObserver(Protocol):
    """Learns what happens to the segments of one topic that this broker owns.

    All methods are called in the event loop's thread. Their errors do not keep the topic from going on.
    """

    def on_writer_opened(self, segment: int) -> None:
        """This broker writes the segment from now on. The runtime is still taking over the state: begin a task."""
        ...

    def on_writer_closed(self, segment: int) -> None:
        """The segment was sealed or lost, or the broker ends: nothing more is acknowledged. It comes once."""
        ...

    async def before_seal(self, segment: int) -> None:
        """Finish: messages accepted until this returns come before the seal, or before the clean end of this broker.

        It is called at most once for a segment, and has `LAST_WORD_SECONDS`; then it is cancelled. It is not called if
        others seal the segment because this broker does not answer. Publishes go on meanwhile.
        """
        ...


class ObservedSegments:
    """Calls the observer of one topic. All methods belong to the event loop's thread."""

    def __init__(self, topic: str, observer: SegmentObserver, clock: Clock) -> None:
        self._topic, self._observer, self._clock = topic, observer, clock
        self._last_words: dict[int, asyncio.Task[None]] = {}

    def opened(self, segment: int, writer: SegmentWriter) -> None:
        """Note that this broker writes the segment from now on."""
        writer.when_ended(partial(self._tell, self._observer.on_writer_closed, segment))
        self._tell(self._observer.on_writer_opened, segment)

    async def last_word(self, segment: int) -> None:
        """Let the observer have its last word about a segment, once: later callers wait for the same.

        It is safe to stop here. The writer is open as before, and nothing has happened to the segment; messages that
        the observer has published are in the log like any others. The rest is missing, as after any failover.
        """
        if segment not in self._last_words:
            speaking = asyncio.create_task(self._speak(segment), name=f"last word about {self._topic}/{segment}")
            self._last_words[segment] = speaking
        # A caller that asks to seal may give up and ask again: the last word goes on.
        await asyncio.wait([self._last_words[segment]])

    def forget(self, segment: int) -> None:
        """Forget a segment that the topic has no longer."""
        self._last_words.pop(segment, None)

    async def close(self) -> None:
        """End the last words under way."""
        for speaking in self._last_words.values():
            speaking.cancel()
        await asyncio.gather(*self._last_words.values(), return_exceptions=True)

    async def _speak(self, segment: int) -> None:
        speaking = asyncio.create_task(self._observer.before_seal(segment), name=f"before_seal {segment}")
        over = asyncio.Event()
        speaking.add_done_callback(partial(_note_end, over))
        try:
            in_time = await comes_within(self._clock, over, LAST_WORD_SECONDS)
        finally:
            # One that does not end even now must not prevent the seal: it is not awaited.
            speaking.cancel()
        error: BaseException | None = TimeoutError(f"it took more than {LAST_WORD_SECONDS:g} s")
        if in_time:
            error = asyncio.CancelledError() if speaking.cancelled() else speaking.exception()
        if error is not None:
            _log.warning("last_word_failed", topic=self._topic, segment=segment, error=error)

    def _tell(self, method: Callable[[int], None], segment: int) -> None:
        try:
            method(segment)
        except Exception as error:
            _log.error("observer_failed", topic=self._topic, segment=segment, error=error, traceback_of=error)


def _note_end(over: asyncio.Event, task: "asyncio.Task[None]") -> None:
    over.set()
    if not task.cancelled():
        task.exception()  # callers that still wait log it
