"""The owner's side of one open segment: it orders messages, stores them file by file, and acknowledges.

One put is in flight at a time; what arrives meanwhile makes up the next file, so the batch size follows the store's
speed and a lone message waits for nobody.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import pyarrow as pa

from filer.clock import Clock, comes_within
from filer.errors import BraidError, OutcomeUnknown, SegmentMoved, SegmentSealed
from filer.inheritance import Inheritance
from filer.keys import FileName
from filer.live_files import FileFacts
from filer.next_file import Accepted, NextFile, Payload, Single
from filer.repeats import sift
from filer.requests import Position, RequestId
from filer.segment_file import Footer
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
LOOK_SECONDS = 0.02
INHERITING_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """How an owner batches: sizes in bytes, times in seconds."""

    flush_bytes: int = 8 * 1024 * 1024
    flush_interval_seconds: float = 0.0
    replicated_flush_interval_seconds: float = 1.0
    grace_seconds: float = 3600.0


@dataclass(slots=True)
class _Pending(Accepted):
    """An accepted request's share of this segment, and who waits for it: `eager` until all followers hold it, `patient`
    until it is stored.

    Of a request with an id, `known` is where messages of it are stored already, `payload` has only the others, and
    its repetitions wait as well, each for what it asks for.
    """

    known: Sequence[Position] = ()
    eager: list[asyncio.Future[list[Position]]] = field(default_factory=list)
    patient: list[asyncio.Future[list[Position]]] = field(default_factory=list)
    # Whether all followers held it before it was stored; and whether somebody was told so.
    held: bool = False
    early: bool = False

    def wait(self, waiting: asyncio.Future[list[Position]], *, replicated: bool) -> None:
        """Have one more told where the messages are."""
        (self.eager if replicated else self.patient).append(waiting)

    def answer(self, segment: int, waiting: Iterable[asyncio.Future[list[Position]]]) -> None:
        """Tell these where the messages are."""
        positions = [*self.known, Position(segment, self.base, self.count)]
        for future in waiting:
            if not future.done():
                future.set_result(positions)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that has just been stored, with its rows in the columns of `log_schema`."""

    segment: int
    facts: FileFacts
    table: pa.Table
    pending_bytes: int


class Replicas(Protocol):
    """The followers of an open segment: they get everything accepted, in order."""

    def attach(self, on_held: Callable[[int], None], on_refused: Callable[[], None]) -> None:
        """Have `on_held` called with the offset before which all followers hold everything, as it grows.

        `on_refused` once a follower takes no more from this owner: it has helped to seal the segment.
        """
        ...

    def send(self, accepted: Accepted) -> None:
        """Send what goes on where the last one ended."""
        ...

    @property
    def in_step(self) -> bool:
        """Whether every follower took what it was sent last: else acknowledgements wait for the store."""
        ...

    def stored(self, end: int) -> None:
        """Everything before that offset is on the store: followers need not hold it."""
        ...

    def close(self) -> None:
        """Send no more."""
        ...


@dataclass(frozen=True, slots=True)
class Replication:
    """How an owner replicates: `may_answer` tells whether it may answer for what only its followers hold.

    `on_held` gets what all followers hold and the store has not yet; `on_unstored` the growth of the bytes that are
    acknowledged and not stored.
    """

    replicas: Replicas
    may_answer: Callable[[], bool]
    on_held: Callable[[int, Sequence[Accepted]], None]
    on_unstored: Callable[[int], None]


async def unknown() -> bool:
    """For an owner that cannot tell whether topic.json names its segment as open."""
    return False


class WriterState(Enum):
    """Where an owner's segment stands."""

    OPEN = "open"
    SEALING = "sealing"
    SEALED = "sealed"
    STOPPED = "stopped"


class SegmentWriter:
    """Owner of one open segment. All methods belong to the event loop's thread.

    `turns` are shared by all writers of a broker. `look` tells whether the topic and the segment are still there,
    `is_open` whether the segment is open and this broker's (fresh reads of topic.json). `on_stored` is called for each
    file before its messages are acknowledged; `on_stopped` once, with the reason, where it ends without a seal: most
    often another writer took over. `inherit` reads the producer windows that the predecessors left, unless the index
    has them. With `replication` all that is accepted goes to the followers too; what only they hold when the writer
    stops is in `unflushed`. `awaited`: publishers were held back until the segment was opened. They all come within a
    moment, so the first file waits for `INHERITING_SECONDS` at most until those with an id can be taken, and the second
    one follows it without a space.
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
        is_open: Callable[[], Awaitable[bool]] = unknown,
        on_stored: Callable[[StoredFile], None],
        on_stopped: Callable[[int, Exception], None],
        inherit: Inherit = nothing_inherited,
        replication: Replication | None = None,
        awaited: bool = False,
    ) -> None:
        self.ref = ref
        self.index = index
        self.state = WriterState.OPEN
        self.pending_bytes = 0
        self._store, self._clock, self._broker, self._settings = store, clock, broker, settings
        self._look, self._is_open, self._turns = look, is_open, turns
        self._on_stored, self._on_stopped = on_stored, on_stopped
        self._awaited = awaited
        self._replication = replication
        if replication is not None:
            replication.replicas.attach(self._held, self._refused)
        self.unflushed: Sequence[Accepted] = ()
        self._pending: list[_Pending] = []
        self._flying: Sequence[_Pending] = ()
        self._unheld: deque[_Pending] = deque()
        self._held_end = 0
        self._hurried = False
        # Set once the next file is not to wait any longer to share messages.
        self._due = asyncio.Event()
        # Requests with an id that are accepted and not stored yet: a repetition waits for the same outcome.
        self._unanswered: dict[RequestId, _Pending] = {}
        self._next_offset = index.end
        self._last_timestamp_us = index.last_timestamp_us
        # None yet: what told us that we own the segment, or where it ends, may be as old as it likes.
        self._proof_seconds = -math.inf
        self._last_put_seconds = -1e9
        self._last_file_bytes = TRICKLE_BYTES
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[int] = self._loop.create_future()
        self.inheritance = Inheritance(clock, index, inherit)
        self._task = asyncio.create_task(self._run(), name=f"writer {ref.topic}/{ref.segment}")

    def append(
        self, payload: Payload, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> asyncio.Future[list[Position]]:
        """Accept messages for the next file; the future tells where they are once they are stored.

        With `replicated`, once all followers hold them, if that comes first.

        All messages that a request with an id has for this segment come at once, when the `inheritance` is complete;
        whatever of them is stored already, here or in a predecessor, is answered with its first positions. Raises
        `SegmentSealed` while the segment is being closed and `SegmentMoved` when it was lost, `SequenceExpired`.
        """
        if self.state is not WriterState.OPEN:
            raise SegmentMoved() if self.state is WriterState.STOPPED else SegmentSealed()
        if request is not None:
            return self._append_once(payload, size_bytes, request, replicated)
        return self._accept(payload, size_bytes, None, (), replicated)

    def _accept(
        self,
        payload: Payload,
        size_bytes: int,
        request: RequestId | None,
        known: Sequence[Position],
        replicated: bool,
    ) -> asyncio.Future[list[Position]]:
        count = 1 if isinstance(payload, Single) else payload.num_rows
        self._last_timestamp_us = max(self._clock.now_us(), self._last_timestamp_us)
        stored: asyncio.Future[list[Position]] = self._loop.create_future()
        pending = _Pending(payload, self._next_offset, count, size_bytes, self._last_timestamp_us, request, known)
        pending.wait(stored, replicated=replicated and self._replication is not None)
        self._pending.append(pending)
        self._next_offset += count
        self.pending_bytes += size_bytes
        if self._replication is not None:
            self._unheld.append(pending)
            self._replication.replicas.send(pending)
        self._wake.set()
        if self.pending_bytes >= self._settings.flush_bytes:
            self._due.set()
        return stored

    def _append_once(
        self, payload: Payload, size_bytes: int, request: RequestId, replicated: bool
    ) -> asyncio.Future[list[Position]]:
        """As `append`. Whoever gives up waiting leaves the others who wait for the same request their answer."""
        if not self.inheritance.complete:
            raise RuntimeError(f"{request} came before the windows of the predecessors")
        if (first := self._unanswered.get(request)) is not None:
            repeat: asyncio.Future[list[Position]] = self._loop.create_future()
            first.wait(repeat, replicated=replicated and self._replication is not None)
            if first.held:
                self._answer_early(first)
            return repeat
        known, new = sift(self.index.windows, request, payload)
        if new is None:
            answered: asyncio.Future[list[Position]] = self._loop.create_future()
            answered.set_result(known)
            return answered
        if isinstance(payload, pa.RecordBatch) and isinstance(new, pa.RecordBatch):
            size_bytes = size_bytes * new.num_rows // payload.num_rows
        stored = self._accept(new, size_bytes, request, known, replicated)
        self._unanswered[request] = self._pending[-1]
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
            self._due.set()
        return await asyncio.shield(self._finished)

    @property
    def accepted_end(self) -> int:
        """The offset after the last accepted message; all before it are stored once the index ends there."""
        return self._next_offset

    def unstored(self, start: int, end: int) -> Sequence[Accepted]:
        """What is accepted and not stored yet between these offsets, in whole requests; when it has stopped too."""
        waiting = self.unflushed or (*self._flying, *self._pending)
        return [each for each in waiting if start < each.end <= end]

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored or has failed; from now on nothing waits to share files.

        What is accepted later is not waited for: where somebody publishes without a pause that would be for ever.
        """
        self._hurried = True
        self._due.set()
        if self._has_stopped():
            return  # all have failed, also those of a put that is under way yet
        # They are stored in their order, so once the last one is answered all are.
        if waiting := [*self._flying[-1:], *self._pending[-1:]]:
            stored: asyncio.Future[list[Position]] = self._loop.create_future()
            waiting[-1].wait(stored, replicated=False)
            await asyncio.wait([stored])

    async def close(self) -> None:
        """Stop without sealing; a later owner finds the end on the store.

        What a put is under way for fails with `OutcomeUnknown`, what still waited with `SegmentMoved`.
        """
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._stop(SegmentMoved("the broker stopped before the message was stored"), self._flying)

    async def _run(self) -> None:
        while self.state in (WriterState.OPEN, WriterState.SEALING):
            await self._wake.wait()
            await self._await_inheritance()
            await self._await_interval()
            # The batch is taken when its turn has come: what arrives while other segments' files are written joins it.
            async with self._turns.turn():
                batch = self._take()
                seal = self.state is WriterState.SEALING and not self._pending
                if not self._pending and self.state is WriterState.OPEN:
                    self._wake.clear()
                if batch or seal:
                    self._flying = batch
                    await self._store_batch(batch, seal)
                    self._flying = ()

    async def _await_inheritance(self) -> None:
        """A put of their own would cost those with an id as much time again."""
        if self._awaited and not self.index.files and not self._hurried:
            await comes_within(self._clock, self.inheritance.over, INHERITING_SECONDS)

    async def _await_interval(self) -> None:
        """On a store where puts cost money, let a stream of messages share files; a lone one goes at once."""
        while (
            self.state is WriterState.OPEN
            and not self._hurried
            and self.pending_bytes < self._settings.flush_bytes
            and (left := self._last_put_seconds + self._interval_seconds() - self._clock.monotonic_seconds()) > 0
        ):
            self._due.clear()
            # How its followers do may shorten the interval at any time.
            await comes_within(self._clock, self._due, left if self._replication is None else min(left, LOOK_SECONDS))

    def _interval_seconds(self) -> float:
        """How old the last put is to be: followers make it safe to wait, while the others count us as alive."""
        factor = 1.0 if self._last_file_bytes >= TRICKLE_BYTES else TRICKLE_FACTOR
        seconds = self._settings.flush_interval_seconds * factor
        if self._replication is None or not self._replication.may_answer():
            return seconds
        waits = not self._replication.replicas.in_step or any(pending.patient for pending in self._pending)
        return seconds if waits else max(seconds, self._settings.replicated_flush_interval_seconds)

    def _held(self, end: int) -> None:
        """All followers hold everything before `end`."""
        self._held_end = end
        self.answer_held()

    def answer_held(self) -> None:
        """Answer those who asked for no more than that all followers hold it, if that may be; readers get it too.

        Safe: while we may answer nobody seals in our stead before a follower refuses us, and whoever does seal then
        flushes what it holds first (DESIGN.md §6). Stopping within this loses answers only.
        """
        replication = self._replication
        if replication is None or self.state not in (WriterState.OPEN, WriterState.SEALING):
            return
        if not self._unheld or self._unheld[0].end > self._held_end or not replication.may_answer():
            return
        held: list[_Pending] = []
        while self._unheld and self._unheld[0].end <= self._held_end:
            held.append(self._unheld.popleft())
        replication.on_held(self.ref.segment, held)
        for pending in held:
            pending.held = True
            self._answer_early(pending)

    def _answer_early(self, pending: _Pending) -> None:
        """Tell those who asked for no more that all followers hold it."""
        replication = self._replication
        if replication is None or not replication.may_answer() or all(waiting.done() for waiting in pending.eager):
            return
        if not pending.early:
            pending.early = True
            replication.on_unstored(pending.held_bytes)
        pending.answer(self.ref.segment, pending.eager)

    def _refused(self) -> None:
        self._stop(SegmentMoved("a follower takes no more: the segment is being sealed"), self._flying)

    def _settle_replication(self, batch: Iterable[_Pending]) -> None:
        """What was answered early has been stored, or is no longer ours to store."""
        if self._replication is not None:
            self._replication.on_unstored(-sum(pending.held_bytes for pending in batch if pending.early))
            while self._unheld and self._unheld[0].end <= self.index.end:
                self._unheld.popleft()

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
        file = NextFile(self.ref, batch, base, f"{self._broker}/{self._clock.ulid()}")
        try:
            if seal:
                await self.inheritance.wait()
                if self._has_stopped():
                    return  # and so is the inheritance: a seal without it would forget what predecessors knew
                file.seal_with(self.index.windows, self._last_timestamp_us)
            ours = await self._put(file, base)
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
        if self._has_stopped():
            return  # refused by a follower meanwhile: everybody has been told
        self._proof_seconds = sent_seconds
        if base > 0 or not self._awaited:
            self._last_put_seconds = sent_seconds
        self._last_file_bytes = file.size_bytes
        self._acknowledge(batch, file)
        if last:
            self._stop(SegmentMoved())

    async def _put(self, file: NextFile, base: int) -> bool:
        """Whether the file is ours. While a segment's first is put topic.json is read, to have a proof of ownership.

        Publishers of a split wait for that file, and a look at all there is would come after it. The record is enough:
        only what is sealed there is rolled up by others, so while it names the segment as open and ours nothing of it
        was superseded, and the first name cannot have come back before that read was `grace` ago.
        """
        put = put_until_known(self._store, self._clock, self.ref.key(FileName(base)), file, file.writer)
        if base > 0:
            return await put
        looked_seconds = self._clock.monotonic_seconds()
        looking = asyncio.create_task(
            self._is_open_still(), name=f"look whether {self.ref.topic}/{self.ref.segment} is open"
        )
        try:
            ours = await put
            if await looking:
                self._proof_seconds = looked_seconds
        finally:
            looking.cancel()
        return ours

    async def _is_open_still(self) -> bool:
        # Where that cannot be told all there is of the segment is looked at, and says what is in the way.
        try:
            return await self._is_open()
        except BraidError:
            return False

    def _has_stopped(self) -> bool:
        """Whether a follower has refused us, which it may while anything is awaited."""
        return self.state is WriterState.STOPPED

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

    def _acknowledge(self, batch: Sequence[_Pending], file: NextFile) -> None:
        """The put has returned and is ours, so the messages are durable and at their offsets: tell everybody.

        Stopping before or within this loses answers only: the messages stand in the store, and the publishers
        who got no answer do not count on them.
        """
        footer = file.footer
        # The repetitions of these requests are answered from here on, as they are after any recovery.
        self.index.append(file.facts, footer.requests)
        for stored in footer.requests:
            self._unanswered.pop(stored.request, None)
        pending_bytes = sum(pending.size_bytes for pending in batch)
        self.pending_bytes -= pending_bytes
        self._on_stored(StoredFile(self.ref.segment, file.facts, file.table, pending_bytes))
        for pending in batch:
            pending.answer(self.ref.segment, (*pending.eager, *pending.patient))
        self._settle_replication(batch)
        if self._replication is not None:
            self._replication.replicas.stored(footer.end)
        if footer.sealed:
            self.state = WriterState.SEALED
            self._end_replication()
            self._finished.set_result(footer.end)

    def _end_replication(self) -> None:
        if self._replication is not None:
            self._replication.replicas.close()

    async def _lose(self, batch: Sequence[_Pending], seal: bool) -> None:
        """Somebody else wrote at our offset. If it was the seal we wanted to put ourselves, that is as good."""
        if seal and not batch:
            seen = await recover_index(self._store, self.ref, start_offset=self.index.start_offset)
            if self.state is WriterState.SEALING and seen.sealed and seen.end == self.index.end:
                self.index.append(seen.files[-1])
                self.state = WriterState.SEALED
                self._end_replication()
                self._finished.set_result(seen.end)
                return
        self._stop(SegmentMoved(), batch)

    def _stop(self, error: Exception, batch: Sequence[_Pending] = ()) -> None:
        """Own the segment no more: nothing pending is acknowledged, whoever waits learns why."""
        if self.state in (WriterState.STOPPED, WriterState.SEALED):
            return
        self.state = WriterState.STOPPED
        if self._replication is not None:
            # A stopped owner still holds a copy, as a follower does: whoever seals asks it for that.
            self.unflushed = [*batch, *self._pending]
            self._fail_replicated(error)
        _fail((*batch, *self._pending), error)
        self._settle_replication((*batch, *self._pending))
        self._end_replication()
        self._pending.clear()
        self.pending_bytes = 0
        self._unanswered.clear()
        self.inheritance.stop()
        self._wake.set()
        self._due.set()
        self._finished.set_exception(error)
        self._finished.exception()
        self._on_stopped(self.ref.segment, error)

    def note_sealed(self) -> None:
        """The topic's record says that the segment is sealed: whatever of it was to be stored is.

        Where somebody else has sealed it, what is under way ends by its put: it alone tells whether it was stored.
        """
        if self.state is WriterState.OPEN and not self._flying and not self._pending:
            self._stop(SegmentMoved("another broker has sealed it"))
        self.unflushed = ()

    def _fail_replicated(self, error: Exception) -> None:
        """A follower that seals stores what it holds: without an id that must not be sent again."""
        unknown = OutcomeUnknown(f"{error}; a follower may store the message yet")
        _fail([each for each in self.unflushed if isinstance(each, _Pending) and each.request is None], unknown)


def _fail(batch: Sequence[_Pending], error: Exception) -> None:
    for pending in batch:
        for future in (*pending.eager, *pending.patient):
            if not future.done():
                future.set_exception(error)
                future.exception()
