"""An open segment that another broker owns, as this one forwards to it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from filer.clock import Clock
from filer.errors import BraidError, OutcomeUnknown, SegmentMoved
from filer.next_file import Payload, Single, rows_of_payloads
from filer.requests import Position, RequestId
from filer.segment_log import SegmentRef
from filer.segment_writer import WriterState
from mq.errors import PeerUnreachable
from mq.part_batch import Part
from mq.peers import Peers

# Two: while the owner stores one batch the next is on its way to it.
CALLS_AT_ONCE = 2
# Where storing takes long, what has waited for a while goes as well: it is to be with the owner when that begins its
# next file. Each such call waits twice as long as the one before, so that they last for slow puts too; on a directory
# puts are done by then, and more calls would only cost.
LATE_CALLS = 6
LATE_SECONDS = 0.02
BATCH_BYTES = 8 * 1024 * 1024
# An owner that seals answers first what it has accepted: an answer that is on its way then is here by now.
LAST_ANSWERS_SECONDS = 2.0


@dataclass(slots=True)
class _Waiting:
    """An accepted part of a request, and who waits for its offset."""

    payload: Payload
    part: Part
    stored: asyncio.Future[list[Position]]


class _OwnersKnowledge:
    """What predecessors knew of producers is the owner's to find out."""

    complete = True

    async def wait(self) -> None:
        return


class RemoteSegment:
    """Sends what is published here to the segment's owner; what arrives during a call goes with a later one.

    Where it is not known what became of a call, its parts fail with `OutcomeUnknown`: nothing is sent twice, but for
    requests with an id, which may be sent again. After any failure it takes no more and calls `on_moved` once: whoever
    comes next gets a newer route, or this one anew.
    """

    def __init__(
        self,
        peers: Peers,
        clock: Clock,
        ref: SegmentRef,
        *,
        url: str | None,
        version: int,
        on_moved: Callable[[], None],
    ) -> None:
        self.ref = ref
        self.state = WriterState.OPEN if url is not None else WriterState.STOPPED
        self._peers, self._clock, self._url, self._version = peers, clock, url or "", version
        self._on_moved = on_moved
        self._waiting: list[_Waiting] = []
        self._calls: dict[asyncio.Task[None], Sequence[_Waiting]] = {}
        self._starting: asyncio.Handle | None = None
        self._late: asyncio.Task[None] | None = None
        self.inheritance = _OwnersKnowledge()

    def append(
        self, payload: Payload, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> asyncio.Future[list[Position]]:
        """Send messages to the owner; the future tells where they are once they are stored.

        Raises `SegmentMoved` after a failure: look for a newer route.
        """
        if self.state is not WriterState.OPEN:
            raise SegmentMoved()
        stored: asyncio.Future[list[Position]] = asyncio.get_running_loop().create_future()
        count = 1 if isinstance(payload, Single) else payload.num_rows
        self._waiting.append(_Waiting(payload, Part(count, size_bytes, request, replicated), stored))
        self._call_soon()
        return stored

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """The owner checks it."""

    async def leave(self) -> None:
        """The segment is sealed: send no more, and do not wait for an owner that was not there to seal it.

        A paused or cut off owner would hold publishers up for as long as a call may take, though others go on.
        """
        self.state = WriterState.STOPPED
        self._fail_waiting(SegmentMoved())
        try:
            if self._calls:
                await self._clock.sleep(LAST_ANSWERS_SECONDS)
        finally:
            for task, batch in list(self._calls.items()):
                _fail_unknown(batch, OutcomeUnknown("the segment was sealed, and its former owner does not answer"))
                task.cancel()

    async def close(self) -> None:
        """Give up; what a call is under way for may be stored or not."""
        tasks = [*self._calls, *([self._late] if self._late is not None else [])]
        # First what waits: a call that ends makes room for the next.
        self._stop(SegmentMoved("the broker stopped before the message was sent on"), ())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _call_soon(self) -> None:
        """Call once everything that has arrived with this message is here as well: it goes with it."""
        if len(self._calls) < CALLS_AT_ONCE:
            if self._starting is None:
                self._starting = asyncio.get_running_loop().call_soon(self._call_if_free)
        elif self._late is None and (late := len(self._calls) - CALLS_AT_ONCE) < LATE_CALLS:
            self._late = asyncio.create_task(self._call_late(LATE_SECONDS * 2**late))

    async def _call_late(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._late = None
        self._call()

    def _call_if_free(self) -> None:
        self._starting = None
        if len(self._calls) < CALLS_AT_ONCE:
            self._call()

    def _call(self) -> None:
        """Send what waits, as much as goes into one call."""
        if self._waiting:
            batch = self._take()
            task = asyncio.create_task(self._send(batch), name=f"forward {self.ref.topic}/{self.ref.segment}")
            self._calls[task] = batch
            task.add_done_callback(self._done)
            self._forget_late()
            if self._waiting:
                self._call_soon()

    def _done(self, task: asyncio.Task[None]) -> None:
        # Of one that was cut off, before or after its request was sent, nobody would tell.
        stopped = OutcomeUnknown("the broker stopped while the message was on its way to its segment's owner")
        _fail(self._calls.pop(task), stopped)
        self._call_if_free()

    def _take(self) -> list[_Waiting]:
        """Whole parts, about `BATCH_BYTES`."""
        size_bytes = taken = 0
        for waiting in self._waiting:
            if taken and size_bytes + waiting.part.size_bytes > BATCH_BYTES:
                break
            size_bytes += waiting.part.size_bytes
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        rows = rows_of_payloads(self.ref, [waiting.payload for waiting in batch])
        runs = _runs(batch)
        try:
            outcomes = await self._peers.append(
                self._url, self.ref.topic, self.ref.segment, self._version, rows, [_joined(run) for run in runs]
            )
        except PeerUnreachable as error:
            self._stop(SegmentMoved(str(error)), batch)
            return
        except Exception as error:
            _fail_unknown(batch, error)
            self._stop(SegmentMoved(), ())
            return
        for run, outcome in zip(runs, outcomes, strict=True):
            if isinstance(outcome, BraidError):
                _fail(run, outcome)
            else:
                _answer(run, outcome)
        if any(isinstance(outcome, SegmentMoved) for outcome in outcomes):
            self._stop(SegmentMoved(), ())

    def _stop(self, error: BraidError, batch: Sequence[_Waiting]) -> None:
        """None of these was sent, or all were certainly refused: they may go to another segment."""
        _fail(batch, error)
        self._fail_waiting(error)
        if self.state is WriterState.OPEN:
            self.state = WriterState.STOPPED
            self._on_moved()

    def _fail_waiting(self, error: BraidError) -> None:
        _fail(self._waiting, error)
        self._waiting = []
        self._forget_late()

    def _forget_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _runs(batch: Sequence[_Waiting]) -> list[list[_Waiting]]:
    """The batch cut so that neighbouring single messages without an id are together.

    They go as one part, which the owner takes and answers as it does the rows of one request.
    """
    return [list(run) for _, run in groupby(batch, _run_key)]


def _run_key(waiting: _Waiting) -> object:
    """The same for neighbours that go as one part."""
    if waiting.part.request is None and isinstance(waiting.payload, Single):
        return ("singles", waiting.part.replicated)
    return id(waiting)


def _joined(run: Sequence[_Waiting]) -> Part:
    first = run[0].part
    if len(run) == 1:
        return first
    return Part(len(run), sum(waiting.part.size_bytes for waiting in run), replicated=first.replicated)


def _answer(run: Sequence[_Waiting], positions: list[Position]) -> None:
    """Tell each of a run where it is: of several, one after the other from where their rows begin."""
    first = positions[0]
    for place, waiting in enumerate(run):
        if not waiting.stored.done():
            found = positions if len(run) == 1 else [Position(first.segment, first.offset + place, 1)]
            waiting.stored.set_result(found)


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.stored.done():
            waiting.stored.set_exception(error)
            waiting.stored.exception()


def _fail_unknown(batch: Sequence[_Waiting], error: Exception) -> None:
    """These may be stored or not: what has an id is found again by whoever owns the segment's successors."""
    _fail([waiting for waiting in batch if waiting.part.request is not None], SegmentMoved(str(error)))
    _fail(batch, error)
