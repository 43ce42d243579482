"""The owner's side of one open segment: it orders messages, stores them file by file, and acknowledges.

One put is in flight at a time; what arrives meanwhile makes up the next file, so the batch size follows the store's
speed and a lone message waits for nobody.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filer.clock import Clock
from filer.errors import OutcomeUnknown, SegmentMoved, SegmentSealed
from filer.inheritance import Inheritance
from filer.keys import FileName
from filer.live_files import FileFacts
from filer.producer_windows import ProducerWindows
from filer.repeats import sift
from filer.requests import Position, RequestId, StoredRequest
from filer.schema import OFFSET_FIELD, TIMESTAMP, rows_schema
from filer.segment_file import Footer, count_refs
from filer.segment_index import SegmentIndex
from filer.segment_log import (
    Inherit,
    SegmentRef,
    fetch_footer,
    nothing_inherited,
    put_until_known,
    recover_index,
)
from filer.store import Store
from filer.turns import Turns

TRICKLE_BYTES = 64 * 1024
TRICKLE_FACTOR = 2.5


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How an owner batches: sizes in bytes, times in seconds."""

    flush_bytes: int = 8 * 1024 * 1024
    flush_interval_seconds: float = 0.0
    grace_seconds: float = 3600.0


@dataclass(slots=True)
class Single:
    """One message that came by itself; joined with its like into columns when the file is written."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] | None
    event_time_us: int | None


Payload: TypeAlias = "pa.RecordBatch | Single"


@dataclass(slots=True)
class _Pending:
    """An accepted request's share of this segment, with the offset it was given.

    Of a request with an id, `known` is where messages of it are stored already, `payload` has only the others, and
    `repeats` are told what `stored` is.
    """

    payload: Payload
    base: int
    count: int
    size_bytes: int
    timestamp_us: int
    stored: asyncio.Future[list[Position]]
    request: RequestId | None = None
    known: Sequence[Position] = ()
    repeats: Sequence[asyncio.Future[list[Position]]] = ()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that has just been stored, with its rows in the columns of `log_schema`."""

    segment: int
    facts: FileFacts
    table: pa.Table
    pending_bytes: int


class WriterState(Enum):
    """Where an owner's segment stands."""

    OPEN = "open"
    SEALING = "sealing"
    SEALED = "sealed"
    STOPPED = "stopped"


class SegmentWriter:
    """Owner of one open segment. All methods belong to the event loop's thread.

    `turns` are shared by all writers of a broker. `look` tells whether the topic and the segment are still there (a
    fresh read of topic.json). `on_stored` is called for each file before its messages are acknowledged; `on_stopped`
    once when another writer took over. `inherit` reads the producer windows that the predecessors left, unless the
    index has them.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ref: SegmentRef,
        index: SegmentIndex,
        *,
        broker: str,
        settings: WriterSettings,
        turns: Turns,
        look: Callable[[], Awaitable[bool]],
        on_stored: Callable[[StoredFile], None],
        on_stopped: Callable[[int], None],
        inherit: Inherit = nothing_inherited,
    ) -> None:
        self.ref = ref
        self.index = index
        self.state = WriterState.OPEN
        self.pending_bytes = 0
        self._store, self._clock, self._broker, self._settings = store, clock, broker, settings
        self._look, self._turns = look, turns
        self._on_stored, self._on_stopped = on_stored, on_stopped
        self._pending: list[_Pending] = []
        # Requests with an id that are accepted and not stored yet: a repetition waits for the same outcome.
        self._unanswered: dict[RequestId, _Pending] = {}
        self._next_offset = index.end
        self._last_timestamp_us = index.last_timestamp_us
        # None yet: what told us that we own the segment, or where it ends, may be as old as it likes.
        self._proof_seconds = -math.inf
        self._last_put_seconds = -1e9
        self._last_file_bytes = TRICKLE_BYTES
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[int] = self._loop.create_future()
        self.inheritance = Inheritance(clock, index, inherit)
        self._task = asyncio.create_task(self._run(), name=f"writer {ref.topic}/{ref.segment}")

    def append(
        self, payload: Payload, size_bytes: int, request: RequestId | None = None
    ) -> asyncio.Future[list[Position]]:
        """Accept messages for the next file; the future tells where they are once they are stored.

        All messages that a request with an id has for this segment come at once, when the `inheritance` is complete;
        whatever of them is stored already, here or in a predecessor, is answered with its first positions. Raises
        `SegmentSealed` while the segment is being closed and `SegmentMoved` when it was lost, `SequenceExpired`.
        """
        if self.state is not WriterState.OPEN:
            raise SegmentMoved() if self.state is WriterState.STOPPED else SegmentSealed()
        if request is not None:
            return self._append_once(payload, size_bytes, request)
        count = 1 if isinstance(payload, Single) else payload.num_rows
        self._last_timestamp_us = max(self._clock.now_us(), self._last_timestamp_us)
        stored: asyncio.Future[list[Position]] = self._loop.create_future()
        self._pending.append(_Pending(payload, self._next_offset, count, size_bytes, self._last_timestamp_us, stored))
        self._next_offset += count
        self.pending_bytes += size_bytes
        self._idle.clear()
        self._wake.set()
        return stored

    def _append_once(self, payload: Payload, size_bytes: int, request: RequestId) -> asyncio.Future[list[Position]]:
        """As `append`. Whoever gives up waiting leaves the others who wait for the same request their answer."""
        if not self.inheritance.complete:
            raise RuntimeError(f"{request} came before the windows of the predecessors")
        if (first := self._unanswered.get(request)) is not None:
            repeat: asyncio.Future[list[Position]] = self._loop.create_future()
            first.repeats = [*first.repeats, repeat]
            return repeat
        known, new = sift(self.index.windows, request, payload)
        if new is None:
            answered: asyncio.Future[list[Position]] = self._loop.create_future()
            answered.set_result(known)
            return answered
        if isinstance(payload, pa.RecordBatch) and isinstance(new, pa.RecordBatch):
            size_bytes = size_bytes * new.num_rows // payload.num_rows
        stored = self.append(new, size_bytes)
        self._unanswered[request] = accepted = self._pending[-1]
        accepted.request, accepted.known = request, known
        return stored

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """Raise `SequenceExpired` where `append` would."""
        if request not in self._unanswered:
            sift(self.index.windows, request, payload)

    async def seal(self) -> int:
        """Take no more, store what was accepted with the seal in the last file; the segment's end offset.

        Every accepted message is answered before this returns. Raises `SegmentMoved` where another writer took
        the segment over; who asked then finds the end on the store.
        """
        if self.state is WriterState.OPEN:
            self.state = WriterState.SEALING
            self._wake.set()
        return await asyncio.shield(self._finished)

    @property
    def accepted_end(self) -> int:
        """The offset after the last accepted message; all before it are stored once the index ends there."""
        return self._next_offset

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored or has failed."""
        await self._idle.wait()

    async def close(self) -> None:
        """Stop without sealing; a later owner finds the end on the store.

        What a put is under way for fails with `OutcomeUnknown`, what still waited with `SegmentMoved`.
        """
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._stop(SegmentMoved("the broker stopped before the message was stored"))

    async def _run(self) -> None:
        while self.state in (WriterState.OPEN, WriterState.SEALING):
            await self._wake.wait()
            await self._await_interval()
            # The batch is taken when its turn has come: what arrives while other segments' files are written joins it.
            async with self._turns.turn():
                batch = self._take()
                seal = self.state is WriterState.SEALING and not self._pending
                if not self._pending and self.state is WriterState.OPEN:
                    self._wake.clear()
                if batch or seal:
                    await self._store_batch(batch, seal)

    async def _await_interval(self) -> None:
        """On a store where puts cost money, let a stream of messages share files; a lone one goes at once."""
        factor = 1.0 if self._last_file_bytes >= TRICKLE_BYTES else TRICKLE_FACTOR
        due = self._last_put_seconds + self._settings.flush_interval_seconds * factor
        while (
            self.state is WriterState.OPEN
            and self.pending_bytes < self._settings.flush_bytes
            and (left := due - self._clock.monotonic_seconds()) > 0
        ):
            await self._clock.sleep(min(left, 0.02))

    def _take(self) -> list[_Pending]:
        """The accepted requests that make up the next file: whole requests, about `flush_bytes`."""
        size_bytes = taken = 0
        for pending in self._pending:
            if taken and size_bytes + pending.size_bytes > self._settings.flush_bytes:
                break
            size_bytes += pending.size_bytes
            taken += 1
        if taken == len(self._pending):
            batch, self._pending = self._pending, []
        else:
            batch, self._pending = self._pending[:taken], self._pending[taken:]
        return batch

    async def _store_batch(self, batch: Sequence[_Pending], seal: bool) -> None:
        base = batch[0].base if batch else self._next_offset
        sent_seconds = self._clock.monotonic_seconds()
        file = _NextFile(self.ref, batch, base, f"{self._broker}/{self._clock.ulid()}")
        try:
            if seal:
                await self.inheritance.wait()
                file.seal_with(self.index.windows, self._last_timestamp_us)
            ours = await put_until_known(self._store, self._clock, self.ref.key(FileName(base)), file, file.writer)
            if not ours:
                await self._lose(batch, seal)
                return
            last = await self._is_last_to_count(file.footer)
        except asyncio.CancelledError:
            # The put may land yet: nobody may take these for messages that are certainly not in the log.
            _fail(batch, OutcomeUnknown("the broker stopped while the message was being stored"))
            raise
        except Exception as error:
            # Whatever it was: a task that just ended would leave every publisher waiting for ever.
            self._stop(error, batch)
            return
        self._proof_seconds = self._last_put_seconds = sent_seconds
        self._last_file_bytes = file.size_bytes
        self._acknowledge(batch, file.table, file.footer, file.size_bytes)
        if last:
            self._stop(SegmentMoved())

    async def _is_last_to_count(self, footer: Footer) -> bool:
        """Look again where the last proof of ownership is old; True: the file counts, but the segment went on.

        A name that was superseded, deleted and created again by this stalled put would be acknowledged and never
        read; deletion waits for `grace`, so a proof younger than half of it rules that out (DESIGN.md §4, "Names
        must not come back"). Raises `SegmentMoved` where the file does not count and never will, and
        `OutcomeUnknown` where a roll-up stands for its offsets: whose messages that holds cannot be told.
        """
        if self._clock.monotonic_seconds() - self._proof_seconds <= self._settings.grace_seconds / 2:
            return False
        name = FileName(footer.base)
        seen = await recover_index(self._store, self.ref, start_offset=self.index.start_offset)
        there = await self._look()
        if not any(facts.name == name for facts in seen.files):
            if there and seen.end > footer.base:
                raise OutcomeUnknown(f"{self.ref.key(name)} was rolled up before its put was answered")
            raise SegmentMoved()
        written, _ = await fetch_footer(self._store, self.ref.key(name))
        if not there or written.writer != footer.writer:
            raise SegmentMoved()
        return (seen.sealed and not footer.sealed) or seen.end != footer.end

    def _acknowledge(self, batch: Sequence[_Pending], table: pa.Table, footer: Footer, size_bytes: int) -> None:
        """The put has returned and is ours, so the messages are durable and at their offsets: tell everybody.

        Stopping before or within this loses answers only: the messages stand in the store, and the publishers
        who got no answer do not count on them.
        """
        facts = FileFacts(
            FileName(footer.base),
            footer.end,
            size_bytes,
            footer.first_timestamp_us,
            footer.last_timestamp_us,
            footer.refs,
            footer.sealed,
            footer.base,
        )
        # The repetitions of these requests are answered from here on, as they are after any recovery.
        self.index.append(facts, footer.requests)
        for stored in footer.requests:
            del self._unanswered[stored.request]
        pending_bytes = sum(pending.size_bytes for pending in batch)
        self.pending_bytes -= pending_bytes
        self._on_stored(StoredFile(self.ref.segment, facts, table, pending_bytes))
        for pending in batch:
            here = Position(self.ref.segment, pending.base, pending.count)
            if not pending.stored.done():
                pending.stored.set_result([*pending.known, here])
            for repeat in pending.repeats:
                if not repeat.done():
                    repeat.set_result([*pending.known, here])
        if not self._pending:
            self._idle.set()
        if footer.sealed:
            self.state = WriterState.SEALED
            self._finished.set_result(footer.end)

    async def _lose(self, batch: Sequence[_Pending], seal: bool) -> None:
        """Somebody else wrote at our offset. If it was the seal we wanted to put ourselves, that is as good."""
        if seal and not batch:
            seen = await recover_index(self._store, self.ref, start_offset=self.index.start_offset)
            if seen.sealed and seen.end == self.index.end:
                self.index.append(seen.files[-1])
                self.state = WriterState.SEALED
                self._finished.set_result(seen.end)
                return
        self._stop(SegmentMoved(), batch)

    def _stop(self, error: Exception, batch: Sequence[_Pending] = ()) -> None:
        """Own the segment no more: nothing pending is acknowledged, whoever waits learns why."""
        if self.state in (WriterState.STOPPED, WriterState.SEALED):
            return
        self.state = WriterState.STOPPED
        _fail((*batch, *self._pending), error)
        self._pending.clear()
        self._unanswered.clear()
        self.inheritance.stop()
        self._idle.set()
        self._finished.set_exception(error)
        self._finished.exception()
        self._on_stopped(self.ref.segment)


def _fail(batch: Sequence[_Pending], error: Exception) -> None:
    for pending in batch:
        for future in (pending.stored, *pending.repeats):
            if not future.done():
                future.set_exception(error)
                future.exception()


class _NextFile:
    """The next file of a segment: encoded when the store first wants its bytes, and the same ever after."""

    def __init__(self, ref: SegmentRef, batch: Sequence[_Pending], base: int, writer: str) -> None:
        self.writer = writer
        self.table: pa.Table
        self.footer: Footer
        self._ref, self._batch, self._base = ref, batch, base
        self._windows: ProducerWindows | None = None
        self._last_us = 0
        self._data: pa.Buffer | None = None

    def seal_with(self, windows: ProducerWindows, last_us: int) -> None:
        """Make it the seal; `windows` are as of all files before it, `last_us` is the segment's last timestamp."""
        self._windows, self._last_us = windows, last_us

    @property
    def size_bytes(self) -> int:
        """Size of the encoded file; 0 before it is."""
        return 0 if self._data is None else int(self._data.size)

    def __call__(self) -> memoryview:
        """Runs on a thread of the store's: columns, then Parquet."""
        if self._data is None:
            batch = self._batch
            self.table = join(self._ref, batch, self._base)
            requests = tuple(
                StoredRequest(each.request, Position(self._ref.segment, each.base, each.count))
                for each in batch
                if each.request is not None
            )
            self.footer = Footer(
                segment=self._ref.segment,
                base=self._base,
                count=self.table.num_rows,
                writer=self.writer,
                first_timestamp_us=batch[0].timestamp_us if batch else 0,
                last_timestamp_us=batch[-1].timestamp_us if batch else 0,
                refs=count_refs(self.table),
                sealed=self._windows is not None,
                requests=requests,
                windows=self._windows_with(requests),
            )
            self._data = self._ref.encode(self.table, self.footer)
        return memoryview(self._data)

    def _windows_with(self, requests: Sequence[StoredRequest]) -> bytes:
        """What the seal says of producers: all that is known with the messages it holds itself."""
        if self._windows is None or (self._windows.empty and not requests):
            return b""
        windows = self._windows.copy()
        for request, position in requests:
            windows.note(request, position, self._last_us)
        windows.expire(self._last_us)
        return windows.to_bytes()


def join(ref: SegmentRef, batch: Sequence[_Pending], base: int) -> pa.Table:
    """Columns of `log_schema` from whole batches and single messages, in order, without copying the batches."""
    schema = rows_schema(ref.key_type, ref.value_type)
    chunks: list[pa.RecordBatch] = []
    singles: list[Single] = []
    for pending in batch:
        if isinstance(pending.payload, Single):
            singles.append(pending.payload)
            continue
        if singles:
            chunks.append(_columns_of(singles, schema))
            singles = []
        chunks.append(pending.payload)
    if singles:
        chunks.append(_columns_of(singles, schema))
    rows = pa.Table.from_batches(chunks, schema=schema)
    counts = [pending.count for pending in batch]
    stamps = np.repeat(np.array([pending.timestamp_us for pending in batch], dtype=np.int64), counts)
    offsets = np.arange(base, base + rows.num_rows, dtype=np.int64)
    first = [_column(offsets, OFFSET_FIELD.type), _column(stamps, TIMESTAMP)]
    return pa.Table.from_arrays([*first, *rows.columns], schema=ref.schema)


def _column(numbers: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """A 64-bit column over the numbers themselves."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _columns_of(singles: Sequence[Single], schema: pa.Schema) -> pa.RecordBatch:
    count = len(singles)
    columns = [
        pa.array([single.key for single in singles], schema.field("key").type),
        pa.array([single.value for single in singles], schema.field("value").type),
        pa.array([single.event_time_us for single in singles], schema.field("event_time").type),
        pa.array([single.headers for single in singles], schema.field("headers").type),
        pa.nulls(count, schema.field("_ref").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
