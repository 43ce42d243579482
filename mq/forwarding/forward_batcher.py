"""Collects parts of requests into calls to another broker, in their order."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from filer import request_ids
from filer.clock import Clock
from filer.format.requests import Position
from filer.segment.next_file import Payload
from filer.tracing import NO_SPAN, Span
from mq.peers.part_batch import Part

# Two calls: while the owner works on one batch, the next one is on its way.
CALLS_AT_ONCE = 2
# If puts take long, parts that have waited for a while are sent in further calls: they should be with the owner when it
# begins its next file. Each such call waits twice as long as the one before, so `LATE_CALLS` are enough for slow puts
# too. On a directory, puts are done before the first of them, and more calls would only cost time.
LATE_CALLS = 6
LATE_SECONDS = 0.02
BATCH_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class WaitingPart:
    """An accepted part of the request with that id. `stored` resolves to its positions.

    `abandoned`: its publisher gave up waiting while it was being sent. `span` is the step of forwarding it.
    """

    payload: Payload
    part: Part
    stored: asyncio.Future[list[Position]]
    abandoned: bool = False
    request_id: str | None = field(default_factory=request_ids.current)
    span: Span = NO_SPAN


class ForwardBatcher:
    """Parts that arrive during a call go with a later one. `producers` counts parts that wait or are being sent.

    `send` makes a call and resolves the parts' futures. `on_ended` gets the parts of a call that is over, with any
    outcome. `on_unstored` gets the change in the number of bytes that are being sent and that no publisher waits for.
    """

    def __init__(
        self,
        clock: Clock,
        send: Callable[[Sequence[WaitingPart]], Coroutine[None, None, None]],
        on_ended: Callable[[Sequence[WaitingPart]], None],
        *,
        name: str,
        on_unstored: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        self._on_unstored = on_unstored
        self.calls: dict[asyncio.Task[None], Sequence[WaitingPart]] = {}
        self.producers: Counter[str] = Counter()
        self._clock, self._send, self._on_ended, self._name = clock, send, on_ended, name
        self._waiting: list[WaitingPart] = []
        self._starting: asyncio.Handle | None = None
        self._late: asyncio.Task[None] | None = None

    def add(self, waiting: WaitingPart) -> None:
        """Send this part with the next call."""
        self._waiting.append(waiting)
        if waiting.part.request is not None:
            self.producers[waiting.part.request.producer] += 1
        self._call_soon()

    def drop_waiting(self) -> list[WaitingPart]:
        """Remove and return the parts that no call has taken. Nothing may be added any more."""
        dropped, self._waiting = self._waiting, []
        self._cancel_late()
        return dropped

    def count_abandoned(self) -> None:
        """Count the parts under way with publishers that have given up, and forget those that no call has taken."""
        for batch in self.calls.values():
            for waiting in batch:
                if waiting.stored.done() and not waiting.abandoned:
                    waiting.abandoned = True
                    self._on_unstored(waiting.part.size_bytes)
        for waiting in self._waiting:
            if waiting.stored.done():
                self._forget_producer(waiting)
        self._waiting = [waiting for waiting in self._waiting if not waiting.stored.done()]

    def _call_soon(self) -> None:
        """Call in the next round of the event loop, with everything that arrived together with this part."""
        if len(self.calls) < CALLS_AT_ONCE:
            if self._starting is None:
                self._starting = asyncio.get_running_loop().call_soon(self._call_if_free)
        elif self._late is None and (late := len(self.calls) - CALLS_AT_ONCE) < LATE_CALLS:
            self._late = asyncio.create_task(self._call_late(LATE_SECONDS * 2**late), name=f"late {self._name}")

    async def _call_late(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._late = None
        self._call()

    def _call_if_free(self) -> None:
        self._starting = None
        if len(self.calls) < CALLS_AT_ONCE:
            self._call()

    def _call(self) -> None:
        """Send the waiting parts, as many as fit into one call."""
        if self._waiting:
            batch = self._take()
            task = asyncio.create_task(self._send(batch), name=self._name, context=request_ids.of_nobody())
            self.calls[task] = batch
            task.add_done_callback(self._done)
            self._cancel_late()
            if self._waiting:
                self._call_soon()

    def _take(self) -> list[WaitingPart]:
        """Take whole parts, about `BATCH_BYTES`."""
        size_bytes = taken = 0
        for waiting in self._waiting:
            if taken and size_bytes + waiting.part.size_bytes > BATCH_BYTES:
                break
            size_bytes += waiting.part.size_bytes
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    def _done(self, task: asyncio.Task[None]) -> None:
        batch = self.calls.pop(task)
        for waiting in batch:
            self._forget_producer(waiting)
            if waiting.abandoned:
                self._on_unstored(-waiting.part.size_bytes)
        self._on_ended(batch)
        self._call_if_free()

    def _forget_producer(self, waiting: WaitingPart) -> None:
        if (request := waiting.part.request) is not None:
            self.producers[request.producer] -= 1
            if not self.producers[request.producer]:
                del self.producers[request.producer]

    def _cancel_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
