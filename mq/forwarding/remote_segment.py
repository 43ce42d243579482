"""An open segment that another broker owns: publishes for it are forwarded to the owner."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from filer import request_ids, tracing
from filer.clock import Clock
from filer.errors import BraidError, OutcomeUnknown, SegmentMoved
from filer.format.requests import Position, RequestId
from filer.segment.cut_rows import CutRows
from filer.segment.next_file import Payload, Single, rows_of_payloads
from filer.segment.segment_log import SegmentRef
from mq.base.errors import FrontStoreFull, PeerSilent, PeerUnreachable
from mq.forwarding.forward_batcher import ForwardBatcher, WaitingPart
from mq.peers.part_batch import Part
from mq.peers.peers import Peers
from mq.tracing.tracer import MOST_TOGETHER

# An owner that seals answers everything it has accepted first. An answer on its way then arrives within this time.
LAST_ANSWERS_SECONDS = 2.0


class _NothingToInherit:
    """A reminder that the owner finds out the producer windows its segment inherits from its predecessors."""

    complete = True

    async def wait(self) -> None:
        return


class RemoteSegment:
    """Forwards messages to the segment's owner. It is the `Appender` of a segment of another broker.

    The owner answers a call when the slowest of its parts is done. So parts acknowledged when stored and parts
    acknowledged when replicated go in separate calls. The exception is a producer that has parts of the other kind
    under way: its parts follow those.

    If the outcome of a call is unknown, its parts fail with `PeerSilent`, so nothing is sent twice. Requests with an id
    fail with `SegmentMoved` instead, and may be sent again. After a failure, unless the owner was just full, this
    accepts no more messages and calls `on_moved` once. The next publish gets a newer route, or a new `RemoteSegment` of
    the same owner.

    `on_forwarded` gets the seconds of each call that is over, with any outcome.
    """

    # Only the owner seals a segment.
    is_sealing = False
    is_sealed = False

    def __init__(
        self,
        peers: Peers,
        clock: Clock,
        ref: SegmentRef,
        *,
        url: str | None,
        version: int,
        on_moved: Callable[[], None],
        on_unstored: Callable[[int], None] = lambda size_bytes: None,
        on_forwarded: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._on_unstored, self._on_forwarded = on_unstored, on_forwarded
        self.ref = ref
        self.is_open = url is not None
        self._peers, self._clock, self._url, self._version = peers, clock, url or "", version
        self._on_moved = on_moved
        self._stored, self._replicated = self._new_batcher("stored"), self._new_batcher("replicated")
        self._batchers = (self._stored, self._replicated)
        self.inheritance = _NothingToInherit()

    def append(
        self, payload: Payload, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> asyncio.Future[list[Position]]:
        """Send messages to the owner. The future resolves to their positions once they are acknowledged.

        Raises `SegmentMoved` after a failure: get a newer route.
        """
        if not self.is_open:
            raise SegmentMoved()
        stored: asyncio.Future[list[Position]] = asyncio.get_running_loop().create_future()
        if isinstance(payload, CutRows):
            payload = payload.batch()
        count = 1 if isinstance(payload, Single) else payload.num_rows
        span = tracing.current().child("forward", kind="client")
        if span.is_recording:
            span.note(segment=self.ref.segment, broker=self._url, messages=count)
            span.end_with(stored)
        batcher = self._batcher_of(request, replicated)
        batcher.add(WaitingPart(payload, Part(count, size_bytes, request, replicated), stored, span=span))
        return stored

    def gather(self, single: Single, size_bytes: int, together: object) -> None:
        """Return None: `append` sends messages that come together in one call."""

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """Do nothing: the owner checks it."""

    def count_abandoned(self) -> None:
        """Count the messages on their way with publishers that have given up waiting."""
        for batcher in self._batchers:
            batcher.count_abandoned()

    async def leave(self) -> None:
        """The segment is sealed: send no more, and give the owner a limited time for its last answers.

        An owner that is paused or cut off did not seal it. It would delay publishers for as long as a call may take,
        although the segment has successors.
        """
        self.is_open = False
        _fail(self._drop_waiting(), SegmentMoved())
        try:
            if any(batcher.calls for batcher in self._batchers):
                await self._clock.sleep(LAST_ANSWERS_SECONDS)
        finally:
            for task, batch in [call for batcher in self._batchers for call in batcher.calls.items()]:
                _fail_unknown(batch, PeerSilent("the segment was sealed, and its former owner does not answer"))
                task.cancel()

    async def close(self) -> None:
        """Cancel all calls. The messages of a call that is under way may be stored or not."""
        # Drop waiting parts first: a call that ends makes room for the next one.
        self._stop(SegmentMoved("the broker stopped before the message was sent on"))
        calls = [task for batcher in self._batchers for task in batcher.calls]
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _new_batcher(self, acks: str) -> ForwardBatcher:
        return ForwardBatcher(
            self._clock,
            self._send,
            _call_ended,
            name=f"forward {self.ref.topic}/{self.ref.segment}, {acks}",
            on_unstored=self._on_unstored,
        )

    def _batcher_of(self, request: RequestId | None, replicated: bool) -> ForwardBatcher:
        own, other = (self._replicated, self._stored) if replicated else (self._stored, self._replicated)
        return other if request is not None and request.producer in other.producers else own

    def _drop_waiting(self) -> list[WaitingPart]:
        return [waiting for batcher in self._batchers for waiting in batcher.drop_waiting()]

    async def _send(self, batch: Sequence[WaitingPart]) -> None:
        rows = rows_of_payloads(self.ref, [waiting.payload for waiting in batch])
        runs = _runs(batch)
        began_seconds = self._clock.monotonic_seconds()
        try:
            # The task of a call belongs to none of its requests, or to the first: its id is that of all of them.
            with request_ids.within(request_ids.joined(waiting.request_id for waiting in batch)):
                outcomes = await self._peers.append(
                    self._url, self.ref.topic, self.ref.segment, self._version, rows, [_joined(run) for run in runs]
                )
        except Exception as error:
            self._call_failed(batch, error)
            return
        finally:
            self._on_forwarded(self._clock.monotonic_seconds() - began_seconds)
        for run, outcome in zip(runs, outcomes, strict=True):
            if isinstance(outcome, BraidError):
                _fail(run, outcome)
            else:
                _answer(run, outcome)
        if any(isinstance(outcome, SegmentMoved) for outcome in outcomes):
            self._stop(SegmentMoved())

    def _call_failed(self, batch: Sequence[WaitingPart], error: Exception) -> None:
        """A refusal of the whole call holds for all of its parts. After any other error the outcome is unknown."""
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
            f"the owner of segment {self.ref.segment} of topic {self.ref.topic!r} does not answer properly, so "
            f"whether the message is stored is not known: {error}"
        )

    def _stop(self, error: BraidError) -> None:
        """Accept no more. None of the waiting parts was sent: they may go to another segment."""
        _fail(self._drop_waiting(), error)
        if self.is_open:
            self.is_open = False
            self._on_moved()


def _call_ended(batch: Sequence[WaitingPart]) -> None:
    """Fail the parts that a cancelled call left without an answer, whether or not its request was sent."""
    _fail(batch, PeerSilent("the broker stopped while the message was on its way to its segment's owner"))


def _runs(batch: Sequence[WaitingPart]) -> list[list[WaitingPart]]:
    """The batch cut so that neighbouring single messages without an id are together.

    All of a batcher's messages without an id are acknowledged in the same way. So a run goes as one part, and the owner
    treats it like the rows of one request.
    """
    return [list(run) for _, run in groupby(batch, _run_key)]


def _run_key(waiting: WaitingPart) -> object:
    """Return a key that is the same for neighbours that go as one part."""
    if waiting.part.request is None and isinstance(waiting.payload, Single):
        return "singles"
    return id(waiting)


def _joined(run: Sequence[WaitingPart]) -> Part:
    first = run[0].part
    traces = [carrier for waiting in run for carrier in waiting.span.carriers()][:MOST_TOGETHER]
    if len(run) == 1:
        return replace(first, traces=traces) if traces else first
    size_bytes = sum(waiting.part.size_bytes for waiting in run)
    return Part(len(run), size_bytes, replicated=first.replicated, traces=traces)


def _answer(run: Sequence[WaitingPart], positions: list[Position]) -> None:
    """Resolve the futures of a run. The messages of a longer run have consecutive offsets."""
    first = positions[0]
    for index, waiting in enumerate(run):
        if not waiting.stored.done():
            found = positions if len(run) == 1 else [Position(first.segment, first.offset + index, 1)]
            waiting.stored.set_result(found)


def _fail(batch: Sequence[WaitingPart], error: Exception) -> None:
    for waiting in batch:
        if not waiting.stored.done():
            waiting.stored.set_exception(error)
            waiting.stored.exception()


def _fail_unknown(batch: Sequence[WaitingPart], error: Exception) -> None:
    """Fail parts that may be stored or not. The owner of the segment's successors recognises requests with an id."""
    _fail([waiting for waiting in batch if waiting.part.request is not None], SegmentMoved(str(error)))
    _fail(batch, error)
