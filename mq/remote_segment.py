"""An open segment that another broker owns, as this one forwards to it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from filer.clock import Clock
from filer.errors import BraidError, SegmentMoved
from filer.next_file import Payload, Single, rows_of_payloads
from filer.requests import Position, RequestId
from filer.segment_log import SegmentRef
from filer.segment_writer import WriterState
from mq.errors import PeerSilent, PeerUnreachable
from mq.part_batch import Part
from mq.peers import Peers

# Two, to be stored or to be replicated: while the owner is at one batch the next is on its way to it.
CALLS_AT_ONCE = 2
BATCH_BYTES = 8 * 1024 * 1024
# An owner that seals answers first what it has accepted: an answer that is on its way then is here by now.
LAST_ANSWERS_SECONDS = 2.0


@dataclass(slots=True)
class _Waiting:
    """An accepted part of a request, and who waits for its offset."""

    payload: Payload
    part: Part
    stored: asyncio.Future[list[Position]]


@dataclass(slots=True)
class _Lane:
    """Parts in their order: those that wait, and those of calls under way. `producers` have so many in either."""

    waiting: list[_Waiting] = field(default_factory=list)
    calls: dict[asyncio.Task[None], Sequence[_Waiting]] = field(default_factory=dict)
    producers: Counter[str] = field(default_factory=Counter)

    def add(self, waiting: _Waiting) -> None:
        """Have one more wait."""
        self.waiting.append(waiting)
        if waiting.part.request is not None:
            self.producers[waiting.part.request.producer] += 1

    def take(self) -> list[_Waiting]:
        """Whole parts for the next call, about `BATCH_BYTES`."""
        size_bytes = taken = 0
        for waiting in self.waiting:
            if taken and size_bytes + waiting.part.size_bytes > BATCH_BYTES:
                break
            size_bytes += waiting.part.size_bytes
            taken += 1
        batch, self.waiting = self.waiting[:taken], self.waiting[taken:]
        return batch

    def end(self, task: asyncio.Task[None]) -> Sequence[_Waiting]:
        """A call is over; its parts."""
        batch = self.calls.pop(task)
        for waiting in batch:
            if (request := waiting.part.request) is not None:
                self.producers[request.producer] -= 1
                if not self.producers[request.producer]:
                    del self.producers[request.producer]
        return batch

    def drop_waiting(self) -> list[_Waiting]:
        """Those that no call has taken; nothing is added any more."""
        dropped, self.waiting = self.waiting, []
        return dropped


class _OwnersKnowledge:
    """What predecessors knew of producers is the owner's to find out."""

    complete = True

    async def wait(self) -> None:
        return


class RemoteSegment:
    """Sends what is published here to the segment's owner; what arrives during a call goes with a later one.

    The owner answers a call when the slowest of its parts is done. So parts that are to be stored and those that are to
    be replicated go by calls of their own, but for those of a producer that has some of the other kind under way: they
    stay behind those.

    Where it is not known what became of a call, its parts fail with `PeerSilent`: nothing is sent twice, but for
    requests with an id, which may be sent again. After any failure it takes no more and calls `on_moved` once: whoever
    comes next gets a newer route, or this one anew.
    """

    def __init__(
        self,
        peers: Peers,
        ref: SegmentRef,
        *,
        url: str | None,
        version: int,
        on_moved: Callable[[], None],
    ) -> None:
        self.ref = ref
        self.state = WriterState.OPEN if url is not None else WriterState.STOPPED
        self._peers, self._url, self._version, self._on_moved = peers, url or "", version, on_moved
        self._stored, self._replicated = self._lanes = (_Lane(), _Lane())
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
        lane = self._lane_of(request, replicated)
        lane.add(_Waiting(payload, Part(count, size_bytes, request, replicated), stored))
        self._call_if_free(lane)
        return stored

    def _lane_of(self, request: RequestId | None, replicated: bool) -> _Lane:
        own, other = (self._replicated, self._stored) if replicated else (self._stored, self._replicated)
        return other if request is not None and request.producer in other.producers else own

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """The owner checks it."""

    async def leave(self, clock: Clock) -> None:
        """The segment is sealed: send no more, and do not wait for an owner that was not there to seal it.

        A paused or cut off owner would hold publishers up for as long as a call may take, though others go on.
        """
        self.state = WriterState.STOPPED
        _fail(self._drop_waiting(), SegmentMoved())
        try:
            if any(lane.calls for lane in self._lanes):
                await clock.sleep(LAST_ANSWERS_SECONDS)
        finally:
            for task, batch in [call for lane in self._lanes for call in lane.calls.items()]:
                _fail_unknown(batch, PeerSilent("the segment was sealed, and its former owner does not answer"))
                task.cancel()

    async def close(self) -> None:
        """Give up; what a call is under way for may be stored or not."""
        # First what waits: a call that ends makes room for the next.
        self._stop(SegmentMoved("the broker stopped before the message was sent on"), ())
        calls = [task for lane in self._lanes for task in lane.calls]
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _call_if_free(self, lane: _Lane) -> None:
        if lane.waiting and len(lane.calls) < CALLS_AT_ONCE:
            batch = lane.take()
            task = asyncio.create_task(self._call(batch), name=f"forward {self.ref.topic}/{self.ref.segment}")
            lane.calls[task] = batch
            task.add_done_callback(partial(self._done, lane))

    def _done(self, lane: _Lane, task: asyncio.Task[None]) -> None:
        # Of one that was cut off, before or after its request was sent, nobody would tell.
        stopped = PeerSilent("the broker stopped while the message was on its way to its segment's owner")
        _fail(lane.end(task), stopped)
        self._call_if_free(lane)

    def _drop_waiting(self) -> list[_Waiting]:
        return [waiting for lane in self._lanes for waiting in lane.drop_waiting()]

    async def _call(self, batch: Sequence[_Waiting]) -> None:
        rows = rows_of_payloads(self.ref, [waiting.payload for waiting in batch])
        try:
            outcomes = await self._peers.append(
                self._url, self.ref.topic, self.ref.segment, self._version, rows, [waiting.part for waiting in batch]
            )
        except PeerUnreachable as error:
            self._stop(SegmentMoved(str(error)), batch)
            return
        except PeerSilent as error:
            _fail_unknown(batch, self._owner_silent(error))
            self._stop(SegmentMoved(), ())
            return
        except Exception as error:
            _fail_unknown(batch, error)
            self._stop(SegmentMoved(), ())
            return
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, BraidError):
                _fail([waiting], outcome)
            elif not waiting.stored.done():
                waiting.stored.set_result(outcome)
        if any(isinstance(outcome, SegmentMoved) for outcome in outcomes):
            self._stop(SegmentMoved(), ())

    def _owner_silent(self, error: PeerSilent) -> PeerSilent:
        return PeerSilent(
            f"the owner of segment {self.ref.segment} of topic {self.ref.topic!r} does not answer as it should, so "
            f"whether the message is stored is not known: {error}"
        )

    def _stop(self, error: BraidError, batch: Sequence[_Waiting]) -> None:
        """None of these was sent, or all were certainly refused: they may go to another segment."""
        _fail([*batch, *self._drop_waiting()], error)
        if self.state is WriterState.OPEN:
            self.state = WriterState.STOPPED
            self._on_moved()


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.stored.done():
            waiting.stored.set_exception(error)
            waiting.stored.exception()


def _fail_unknown(batch: Sequence[_Waiting], error: Exception) -> None:
    """These may be stored or not: what has an id is found again by whoever owns the segment's successors."""
    _fail([waiting for waiting in batch if waiting.part.request is not None], SegmentMoved(str(error)))
    _fail(batch, error)
