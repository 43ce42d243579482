"""An open segment that another broker owns, as this one forwards to it."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby

from filer.clock import Clock
from filer.errors import BraidError, OutcomeUnknown, SegmentMoved
from filer.next_file import Payload, Single, rows_of_payloads
from filer.requests import Position, RequestId
from filer.segment_log import SegmentRef
from filer.segment_writer import WriterState
from mq.call_lane import CallLane, Waiting
from mq.errors import FrontStoreFull, PeerSilent, PeerUnreachable
from mq.part_batch import Part
from mq.peers import Peers

# An owner that seals answers first what it has accepted: an answer that is on its way then is here by now.
LAST_ANSWERS_SECONDS = 2.0


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
    requests with an id, which may be sent again. After a failure, unless the owner was just full, it takes no more and
    calls `on_moved` once: whoever comes next gets a newer route, or this one anew.
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
        self._stored, self._replicated = self._lanes = (self._new_lane("stored"), self._new_lane("replicated"))
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
        lane.add(Waiting(payload, Part(count, size_bytes, request, replicated), stored))
        return stored

    def _new_lane(self, acks: str) -> CallLane:
        return CallLane(
            self._clock, self._send, _call_ended, name=f"forward {self.ref.topic}/{self.ref.segment}, {acks}"
        )

    def _lane_of(self, request: RequestId | None, replicated: bool) -> CallLane:
        own, other = (self._replicated, self._stored) if replicated else (self._stored, self._replicated)
        return other if request is not None and request.producer in other.producers else own

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """The owner checks it."""

    async def leave(self) -> None:
        """The segment is sealed: send no more, and do not wait for an owner that was not there to seal it.

        A paused or cut off owner would hold publishers up for as long as a call may take, though others go on.
        """
        self.state = WriterState.STOPPED
        _fail(self._drop_waiting(), SegmentMoved())
        try:
            if any(lane.calls for lane in self._lanes):
                await self._clock.sleep(LAST_ANSWERS_SECONDS)
        finally:
            for task, batch in [call for lane in self._lanes for call in lane.calls.items()]:
                _fail_unknown(batch, PeerSilent("the segment was sealed, and its former owner does not answer"))
                task.cancel()

    async def close(self) -> None:
        """Give up; what a call is under way for may be stored or not."""
        # First what waits: a call that ends makes room for the next.
        self._stop(SegmentMoved("the broker stopped before the message was sent on"))
        calls = [task for lane in self._lanes for task in lane.calls]
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _drop_waiting(self) -> list[Waiting]:
        return [waiting for lane in self._lanes for waiting in lane.drop_waiting()]

    async def _send(self, batch: Sequence[Waiting]) -> None:
        rows = rows_of_payloads(self.ref, [waiting.payload for waiting in batch])
        runs = _runs(batch)
        try:
            outcomes = await self._peers.append(
                self._url, self.ref.topic, self.ref.segment, self._version, rows, [_joined(run) for run in runs]
            )
        except Exception as error:
            self._call_failed(batch, error)
            return
        for run, outcome in zip(runs, outcomes, strict=True):
            if isinstance(outcome, BraidError):
                _fail(run, outcome)
            else:
                _answer(run, outcome)
        if any(isinstance(outcome, SegmentMoved) for outcome in outcomes):
            self._stop(SegmentMoved())

    def _call_failed(self, batch: Sequence[Waiting], error: Exception) -> None:
        """What a refusal of the whole call says holds for all of it; of anything else the outcome is not known."""
        match error:
            case FrontStoreFull():
                _fail(batch, error)
                return
            case PeerUnreachable():
                _fail(batch, SegmentMoved(str(error)))
            case PeerSilent():
                _fail_unknown(batch, self._owner_silent(error))
            case BraidError() if not isinstance(error, OutcomeUnknown):
                _fail(batch, error)
            case _:
                _fail_unknown(batch, error)
        self._stop(SegmentMoved())

    def _owner_silent(self, error: PeerSilent) -> PeerSilent:
        return PeerSilent(
            f"the owner of segment {self.ref.segment} of topic {self.ref.topic!r} does not answer as it should, so "
            f"whether the message is stored is not known: {error}"
        )

    def _stop(self, error: BraidError) -> None:
        """None of those that wait was sent: they may go to another segment."""
        _fail(self._drop_waiting(), error)
        if self.state is WriterState.OPEN:
            self.state = WriterState.STOPPED
            self._on_moved()


def _call_ended(batch: Sequence[Waiting]) -> None:
    """Of one that was cut off, before or after its request was sent, nobody would tell."""
    _fail(batch, PeerSilent("the broker stopped while the message was on its way to its segment's owner"))


def _runs(batch: Sequence[Waiting]) -> list[list[Waiting]]:
    """The batch cut so that neighbouring single messages without an id are together.

    Those of a lane are all acknowledged in the same way. They go as one part, which the owner takes and answers as it
    does the rows of one request.
    """
    return [list(run) for _, run in groupby(batch, _run_key)]


def _run_key(waiting: Waiting) -> object:
    """The same for neighbours that go as one part."""
    if waiting.part.request is None and isinstance(waiting.payload, Single):
        return "singles"
    return id(waiting)


def _joined(run: Sequence[Waiting]) -> Part:
    first = run[0].part
    if len(run) == 1:
        return first
    return Part(len(run), sum(waiting.part.size_bytes for waiting in run), replicated=first.replicated)


def _answer(run: Sequence[Waiting], positions: list[Position]) -> None:
    """Tell each of a run where it is: of several, one after the other from where their rows begin."""
    first = positions[0]
    for place, waiting in enumerate(run):
        if not waiting.stored.done():
            found = positions if len(run) == 1 else [Position(first.segment, first.offset + place, 1)]
            waiting.stored.set_result(found)


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.stored.done():
            waiting.stored.set_exception(error)
            waiting.stored.exception()


def _fail_unknown(batch: Sequence[Waiting], error: Exception) -> None:
    """These may be stored or not: what has an id is found again by whoever owns the segment's successors."""
    _fail([waiting for waiting in batch if waiting.part.request is not None], SegmentMoved(str(error)))
    _fail(batch, error)
