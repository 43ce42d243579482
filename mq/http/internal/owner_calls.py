"""Calls to the owner of a segment: store parts of requests, seal, read the newest messages."""

import asyncio

import pyarrow as pa
from starlette.types import Receive

from filer import tracing
from filer.errors import SegmentMoved, SegmentSealed
from filer.event_log import EventLog
from filer.format.requests import Position
from filer.segment.writer.segment_writer import SegmentWriter
from leader.transitions import SealedEnd
from mq.bodies.intake import Intake
from mq.broker import Broker
from mq.http.internal.topic_at import topic_at
from mq.http.problems import problem_of
from mq.peers.answer_forms import Outcomes, Refusal, TailPage, place_in
from mq.peers.calls import Call, ToReadTail, ToSeal, ToSegmentAt
from mq.peers.part_batch import Part, unpack_parts
from mq.peers.transport import PeerAnswer
from mq.topic.topic_runtime import TopicRuntime

_LONGEST_WAIT_SECONDS = 60.0
_log = EventLog(__name__)


class OwnerCalls:
    """The work of a segment's owner for other brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def append(self, call: Call[ToSegmentAt, Outcomes], asked: ToSegmentAt, receive: Receive) -> PeerAnswer:
        """Store parts of requests in a segment of ours. The writer takes all of them before anything is awaited."""
        broker = self._broker
        with Intake(broker.front_store, broker.front_store.limit_bytes, None, wait=False) as intake:
            body = await intake.read(receive, None)
            runtime = await topic_at(broker, asked.topic, asked.version)
            writer = _open_writer(runtime, asked.segment)
            parts = list(unpack_parts(body, runtime.ref(asked.segment).schema.rows))
            # The asking broker, which has the same time limit, is to get our answer first: it names the cause.
            group = broker.forwarded_deadlines.group()
            if any(part.request is not None for part, _ in parts):
                async with broker.forwarded_deadlines.within(group):
                    await writer.inheritance.wait()
            stored = [self._append_part(asked, writer, part, rows) for part, rows in parts]
            group.waiters.update(stored)
            try:
                outcomes = await asyncio.gather(*stored, return_exceptions=True)
            finally:
                group.waiters.difference_update(stored)
        return call.pack([_outcome(outcome) for outcome in outcomes])

    def _append_part(
        self, asked: ToSegmentAt, writer: SegmentWriter, part: Part, rows: pa.RecordBatch
    ) -> asyncio.Future[list[Position]]:
        """The future resolves to the positions once the part is stored, or fails as `append` would."""
        span = self._broker.tracer.resume("append", asked.topic, part.traces)
        with tracing.within(span):
            stored = _append(writer, part, rows)
        if span.is_recording:
            span.note(segment=asked.segment, messages=part.count)
            span.end_with(stored)
        return stored

    async def seal(self, call: Call[ToSeal, SealedEnd | None], asked: ToSeal, receive: Receive) -> PeerAnswer:
        """Seal a segment of ours with everything accepted before in it. Repeated, it gives the same answer.

        If the store takes longer than the caller waits, answer that we are still sealing: a broker without an answer
        may be paused, and the others would have to decide against it. The end is reported only once the seal is stored.
        """
        runtime = await topic_at(self._broker, asked.topic, asked.version)
        if (writer := runtime.writers.get(asked.segment)) is None:
            raise _not_ours(runtime, asked.segment)
        sealing = asyncio.create_task(
            self._broker.sealer.seal_owned(runtime, asked.segment), name=f"seal {asked.topic}/{asked.segment}"
        )
        try:
            await asyncio.wait([sealing], timeout=min(asked.wait_seconds, _LONGEST_WAIT_SECONDS))
            if not sealing.done() and (writer.is_open or writer.is_sealing):
                return call.pack(None)
            return call.pack(await sealing)
        finally:
            sealing.cancel()

    async def read_tail(self, call: Call[ToReadTail, TailPage], asked: ToReadTail, receive: Receive) -> PeerAnswer:
        """Messages of a segment of ours from an offset on, as soon as there are any."""
        broker, segment = self._broker, asked.segment
        runtime = await broker.topics.topic(asked.topic)
        reader = await broker.reader(asked.topic)
        deadline = broker.clock.monotonic_seconds() + min(asked.wait_seconds, _LONGEST_WAIT_SECONDS)
        while True:
            writer = _our_writer(runtime, segment)
            news = runtime.reads.news()
            offset = min(asked.offset, await runtime.reads.end_of(segment))
            async with broker.reads.cut_off():
                run = await reader.read_segment(segment, offset, max_rows=asked.max_rows, max_bytes=asked.max_bytes)
            if not run.table.num_rows:
                # If we lost the segment during the read, it may hold more than we know of.
                writer = _our_writer(runtime, segment)
            sealed = writer.is_sealed and run.end == writer.index.end
            left_seconds = deadline - broker.clock.monotonic_seconds()
            if run.table.num_rows or sealed or left_seconds <= 0 or broker.draining.is_set():
                break
            await asyncio.wait([news], timeout=left_seconds)
        answer = call.pack(TailPage(run.table, run.end, sealed, writer.index.stored_bytes))
        if run.table.num_rows:
            # The broker that serves the readers counts them. For this segment that broker is one reader.
            runtime.traffic.count_read(segment, run.table.num_rows, len(answer.body))
        return answer


def _open_writer(runtime: TopicRuntime, segment: int) -> SegmentWriter:
    writer = runtime.writers.get(segment)
    if writer is None or not writer.is_open:
        raise SegmentMoved(f"segment {segment} of topic {runtime.topic!r} is not open here")
    return writer


def _our_writer(runtime: TopicRuntime, segment: int) -> SegmentWriter:
    """The writer that writes the segment or has sealed it; raises `SegmentMoved` if another broker has sealed it."""
    writer = runtime.writers.get(segment)
    if writer is None or writer.has_stopped:
        raise _not_ours(runtime, segment)
    return writer


def _not_ours(runtime: TopicRuntime, segment: int) -> SegmentMoved:
    return SegmentMoved(f"segment {segment} of topic {runtime.topic!r} is not ours")


def _append(writer: SegmentWriter, part: Part, rows: pa.RecordBatch) -> asyncio.Future[list[Position]]:
    try:
        return writer.append(rows, part.size_bytes, part.request, replicated=part.replicated)
    except Exception as error:
        refused: asyncio.Future[list[Position]] = asyncio.get_running_loop().create_future()
        refused.set_exception(SegmentMoved() if isinstance(error, SegmentSealed) else error)
        return refused


def _outcome(outcome: list[Position] | BaseException) -> list[Position] | Refusal:
    if isinstance(outcome, list):
        return outcome
    if not isinstance(outcome, Exception):
        raise outcome
    problem = problem_of(outcome)
    if problem.status == 500:
        _log.error("request_part_failed", error=outcome, traceback_of=outcome)
    return Refusal(problem.slug, problem.detail, problem.extras.get("cause"), place_in(problem.extras))
