"""The owner's side of one open segment: it orders messages, stores them file by file, and acknowledges them.

One put is in flight at a time. Messages that arrive meanwhile make up the next file. So the batch size follows the
store's speed, and a single message does not wait for others.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from filer import request_ids, tracing
from filer.clock import Clock
from filer.errors import OutcomeUnknown, SegmentMoved, SegmentSealed
from filer.format.requests import RequestId
from filer.keys import FileName
from filer.segment.cut_rows import CutRows
from filer.segment.inheritance import Inheritance
from filer.segment.later_table import Rows
from filer.segment.live_files import FileFacts
from filer.segment.next_file import Accepted, NextFile, Payload, Single
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import Inherit, SegmentRef, nothing_inherited, put_until_known, recover_index
from filer.segment.writer.flush_timer import FlushTimer
from filer.segment.writer.ownership_proof import OwnershipProof, TopicRecordChecks
from filer.segment.writer.pending_request import PendingRequest, Waiter, fail
from filer.segment.writer.publish_queue import PublishQueue
from filer.segment.writer.replicated_acks import Replication, acknowledgements
from filer.segment.writer.write_limiter import WriteLimiter
from filer.segment.writer.writer_settings import WriterSettings
from filer.segment.writer.writer_state import HasWriterState, WriterState
from filer.stores.store import Store
from filer.stores.store_time import Moment, moment
from filer.tracing import Span

MOST_LINKS = 32
"""The span of a put points to so many more requests of its file."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that has just been stored, with its rows in the columns of `MessageSchema.log`, now or later."""

    segment: int
    facts: FileFacts
    rows: Rows
    pending_bytes: int


@dataclass(frozen=True, slots=True)
class WriterContext:
    """What all writers of a broker share. `broker` is its id, which is part of every file's writer."""

    store: Store
    clock: Clock
    broker: str
    settings: WriterSettings
    limiter: WriteLimiter


class SegmentWriter(HasWriterState):
    """Owner of one open segment. All methods belong to the event loop's thread.

    `checks` read topic.json. `on_stored` is called for each file before its messages are acknowledged. `on_stopped` is
    called once, with the reason, if the writer ends without a seal, mostly because another writer took over. `inherit`
    reads the producer windows that the predecessors left, unless the index has them. With `replication`, everything
    accepted goes to the followers too; messages that only they hold when the writer stops are in `unflushed`.
    `awaited`: publishers were held back until the segment was opened (see `FlushTimer`). `proven`: the moment of a look
    at topic.json and the log that showed this owner to be the owner, and the log to end where the index ends.
    `on_unstored` gets the change in the number of bytes that are accepted and not stored, and that no publisher waits
    for any more.
    """

    def __init__(
        self,
        context: WriterContext,
        ref: SegmentRef,
        index: SegmentIndex,
        *,
        checks: TopicRecordChecks,
        on_stored: Callable[[StoredFile], None],
        on_stopped: Callable[[int, Exception], None],
        inherit: Inherit = nothing_inherited,
        replication: Replication | None = None,
        awaited: bool = False,
        proven: Moment | None = None,
        on_unstored: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        super().__init__()
        self.ref, self.index = ref, index
        self.unflushed: Sequence[Accepted] = ()
        self.inheritance = Inheritance(context.clock, index, inherit)
        self._context, self._on_stored, self._on_stopped = context, on_stored, on_stopped
        self._on_unstored, self._abandoned_bytes = on_unstored, 0
        self._is_sealed_by_others = False
        clock, settings = context.clock, context.settings
        self._is_replicated = replication is not None
        self._acks = acknowledgements(ref.segment, replication, on_refused=self._refused)
        self._timer = FlushTimer(clock, settings, self._acks, awaited=awaited)
        self._queue = PublishQueue(
            clock,
            index,
            self._acks,
            flush_bytes=settings.flush_bytes,
            on_full=self._timer.file_is_full,
            log_now_us=lambda: min(clock.now_us(), context.store.time.latest_us or clock.now_us()),
        )
        self._proof = OwnershipProof(
            context.store, clock, ref, index, checks=checks, grace_seconds=settings.grace_seconds
        )
        if proven is not None:
            self._proof.renew(proven)
        self._finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(
            self._run(), name=f"writer {ref.topic}/{ref.segment}", context=request_ids.of_nobody()
        )

    def append(
        self, payload: Payload, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> Waiter:
        """Accept messages for the next file. The future resolves to the positions once the messages are stored.

        With `replicated`, it resolves once all followers hold them, if that comes first.

        A request with an id comes when the `inheritance` is complete, with all its messages for this segment at once.
        Those that are stored already, here or in a predecessor, are answered with their first positions. Raises
        `SegmentSealed` while the segment is being closed, `SegmentMoved` when it was lost, `SequenceExpired`, and
        `ProducerTaken`.
        """
        self._check_open()
        if self._is_replicated and isinstance(payload, CutRows):
            # Followers and readers need the columns before they are stored: they are put together once.
            payload = payload.batch()
        if request is None:
            return self._queue.add(payload, size_bytes, replicated=replicated)
        if not self.inheritance.complete:
            raise RuntimeError(f"{request} came before the windows of the predecessors")
        return self._queue.add_once(payload, size_bytes, request, replicated=replicated)

    def gather(self, single: Single, size_bytes: int, together: object) -> tuple[Waiter, int] | None:
        """As `append` of one message without an id, which shares a waiter with those right before it.

        The waiter gets the position of the first of them; the number says which of them this one is. None if the
        message has to be appended by itself: nothing was done then. Messages of another `together` have a waiter of
        their own.
        """
        self._check_open()
        return self._queue.gather(single, size_bytes, together)

    def _check_open(self) -> None:
        if self._is_sealed_by_others:
            raise SegmentMoved()
        if self.state is not WriterState.OPEN:
            raise SegmentMoved() if self.has_stopped else SegmentSealed()

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """Raise `SequenceExpired` or `ProducerTaken` if `append` would."""
        self._queue.check_sequence(payload, request)

    async def seal(self) -> int:
        """Accept no more, and store everything accepted, with the seal in the last file; returns the end offset.

        Every accepted message is answered before this returns. Raises `SegmentMoved` if another writer took the segment
        over; the caller then finds the end on the store.
        """
        if self.is_open:
            self.state = WriterState.SEALING
            self._queue.has_work.set()
            self._timer.end()
        return await asyncio.shield(self._finished)

    def when_ended(self, ended: Callable[[], None]) -> None:
        """Call `ended` once, soon after the segment was sealed, or the writer has ended without a seal."""
        self._finished.add_done_callback(lambda finished: ended())

    def count_abandoned(self) -> None:
        """Count the accepted messages whose publishers have all given up waiting. They are stored nevertheless."""
        found_bytes = 0 if self.has_stopped else self._queue.abandon()
        if found_bytes:
            self._abandoned_bytes += found_bytes
            self._on_unstored(found_bytes)

    @property
    def pending_bytes(self) -> int:
        """The size of everything accepted that is not stored yet."""
        return self._queue.size_bytes

    @property
    def is_at_rest(self) -> bool:
        """Whether it goes on, and has nothing to store and nothing on its way to the store."""
        return self.is_open and not self._queue.unstored()

    @property
    def has_stored_all(self) -> bool:
        """Whether everything that was ever accepted is stored; after `close`, that no put may take effect later."""
        return self._queue.end == self.index.end

    @property
    def accepted_end(self) -> int:
        """The offset after the last accepted message; all before it are stored once the index ends there."""
        return self._queue.end

    def unstored(self, start: int, end: int) -> Sequence[Accepted]:
        """Accepted requests between these offsets that are not stored, as whole requests; also after it stopped."""
        waiting = self.unflushed or self._queue.unstored()
        return [each for each in waiting if start < each.end <= end]

    async def flush(self) -> None:
        """As `all_stored`; from now on nothing waits to share files."""
        self._timer.request_flush()
        await self.all_stored()

    async def all_stored(self) -> None:
        """Wait until everything accepted so far is stored or has failed.

        This does not wait for messages accepted later: with a publisher that never pauses it would not end.
        """
        if self.has_stopped:
            return  # All have failed, including those of a put that is still under way.
        if (last := self._queue.last_unstored()) is not None:
            stored: Waiter = asyncio.get_running_loop().create_future()
            last.stored_waiters.append(stored)
            await asyncio.wait([stored])

    async def close(self) -> None:
        """Stop without sealing; a later owner finds the end on the store.

        Messages whose put is under way fail with `OutcomeUnknown`, all others with `SegmentMoved`.
        """
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._stop(SegmentMoved("the broker stopped before the message was stored"), self._queue.in_flight)

    def answer_held(self) -> None:
        """Answer waiters that asked for `replicated`, if followers hold their messages and this owner may answer."""
        self._acks.answer_held()

    def note_sealed(self) -> None:
        """Record that topic.json says that the segment is sealed: nothing more of it will be stored.

        If another broker has sealed it, a put under way is not cancelled: only its outcome shows whether its messages
        were stored. But no message is accepted any more: other brokers that have old news may still send some.
        """
        self._is_sealed_by_others = self._is_sealed_by_others or self.is_open
        if self.is_open and not self._queue.unstored():
            self._stop(SegmentMoved("another broker has sealed it"))
        self.unflushed = ()

    async def _run(self) -> None:
        queue = self._queue
        while self.is_open or self.is_sealing:
            await queue.has_work.wait()
            await self._timer.wait_for_windows(self.inheritance, is_first_file=not self.index.files)
            await self._timer.wait_until_due(queue)
            # The batch is taken once there is a permit: messages that arrive during other segments' puts join it.
            async with self._context.limiter.permit():
                batch = queue.take_batch()
                seal = self.is_sealing and not queue.pending
                if not queue.pending and self.is_open:
                    queue.has_work.clear()
                if batch or seal:
                    await self._store_batch(batch, seal)
                    queue.in_flight = ()
                # While this waits for the next message, it must not hold the last ones, which no longer count.
                del batch

    async def _store_batch(self, batch: Sequence[PendingRequest], seal: bool) -> None:
        store, clock = self._context.store, self._context.clock
        base = batch[0].base if batch else self._queue.end
        sent = moment(store.time, clock)
        file = NextFile(self.ref, batch, base, f"{self._context.broker}/{clock.ulid()}", self.index.link)
        try:
            if seal:
                await self.inheritance.wait()
                if self.has_stopped:
                    return  # The inheritance stopped too: a seal without it would forget what predecessors knew.
                last_us = max(self._queue.last_timestamp_us, store.time.latest_us)
                file.seal_with(self.index.windows, last_us, self.index.log_us)
            key = self.ref.key(FileName(base))
            with _put_span(batch) as span:
                put = put_until_known(store, clock, key, file, file.writer, through_refusals=True)
                # If the proof is too old when the put is answered, the whole segment is read.
                ours = await (put if base > 0 or self._proof.is_fresh else self._proof.prove_during(put))
                span.note(segment=self.ref.segment, key=key, size_bytes=file.size_bytes, requests=len(batch))
            if not ours:
                await self._lose(batch, seal)
                return
            moved_on = await self._proof.has_moved_on(file.footer)
        except asyncio.CancelledError:
            # The put may still take effect: these messages must not count as certainly not stored.
            fail(batch, OutcomeUnknown("the broker stopped while the message was being stored"))
            raise
        except Exception as error:
            # Catch every error: if the task simply ended, every publisher would wait for ever.
            self._stop(error, batch)
            return
        if self.has_stopped:
            return  # A follower has refused us meanwhile, and every waiter was answered.
        self._proof.renew(sent)
        self._timer.stored(base, sent.monotonic_seconds, file.size_bytes)
        self._acknowledge(batch, file)
        if moved_on:
            self._stop(SegmentMoved())

    def _acknowledge(self, batch: Sequence[PendingRequest], file: NextFile) -> None:
        """Answer every waiter: the put has returned and is ours, so the messages are durable and at their offsets.

        Stopping before or within this loses answers only: the messages are on the store, and a publisher without an
        answer does not rely on them.
        """
        footer = file.footer
        # From here on repetitions of these requests are answered, as they are after any recovery.
        stored = replace(file.facts, stored_us=self._context.store.time.latest_us)
        self.index.append(stored, footer.requests, file.link)
        pending_bytes = self._queue.stored(batch, footer.requests)
        self._on_stored(StoredFile(self.ref.segment, file.facts, file.rows, pending_bytes))
        for pending in batch:
            pending.answer(self.ref.segment, (*pending.replicated_waiters, *pending.stored_waiters))
        self._acks.stored(batch, footer.end)
        if self._abandoned_bytes:
            self._settle_abandoned(sum(pending.held_bytes for pending in batch if pending.abandoned))
        if footer.sealed:
            self._sealed(footer.end)

    async def _lose(self, batch: Sequence[PendingRequest], seal: bool) -> None:
        """Stop: another broker wrote at our offset.

        If it is a seal, and we had nothing else to put, it serves as ours.
        """
        if seal and not batch:
            newest = await recover_index(self._context.store, self.ref, start_offset=self.index.start_offset)
            if self.is_sealing and newest.sealed and newest.end == self.index.end:
                self.index.append(newest.files[-1], link=newest.link)
                self._sealed(newest.end)
                return
        self._stop(SegmentMoved(), batch)

    def _sealed(self, end: int) -> None:
        self.state = WriterState.SEALED
        self._acks.close()
        self._finished.set_result(end)

    def _refused(self) -> None:
        self._stop(SegmentMoved("a follower takes no more: the segment is being sealed"), self._queue.in_flight)

    def _settle_abandoned(self, size_bytes: int) -> None:
        self._abandoned_bytes -= size_bytes
        self._on_unstored(-size_bytes)

    def _stop(self, error: Exception, batch: Sequence[PendingRequest] = ()) -> None:
        """Give up the segment: nothing pending is acknowledged, and every waiter gets the error."""
        if self.has_stopped or self.is_sealed:
            return
        self.state = WriterState.STOPPED
        self.unflushed = self._acks.stop([*batch, *self._queue.pending], error)
        self._queue.clear()
        self._settle_abandoned(self._abandoned_bytes)
        self.inheritance.stop()
        self._timer.end()
        self._finished.set_exception(error)
        # Mark it as retrieved: perhaps no caller waits for a seal.
        self._finished.exception()
        self._on_stopped(self.ref.segment, error)


def _put_span(batch: Sequence[PendingRequest]) -> Span:
    """The step of a put, in the trace of the first traced request in its file, with links to the others and from them.

    The steps in which these requests waited end here.
    """
    waited = [span for pending in batch for span in pending.span.each()]
    if not waited:
        return tracing.NO_SPAN
    put = waited[0].follow("put", kind="client", links=waited[1 : 1 + MOST_LINKS])
    for span in waited[1:]:
        span.link(put)
    for span in waited:
        span.end()
    return put
