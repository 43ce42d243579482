"""The blocking producer: it gathers messages in the caller's thread, and hands them to the event loop together."""

import asyncio
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from sys import modules
from types import TracebackType
from typing import Any, Self, TypeVar

from braidmq.blocking import LoopThread
from braidmq.errors import ClientClosed
from braidmq.positions import Acknowledgement
from braidmq.publish.encoding.outgoing import (
    ROW_OVERHEAD_BYTES,
    Headers,
    Key,
    OutgoingMessage,
    Row,
    Value,
    is_inline,
    key_bytes,
    row_of,
    value_bytes,
)
from braidmq.publish.encoding.row_columns import RowColumns
from braidmq.publish.producer import AsyncProducer
from braidmq.publish.receipts import ABANDONED, Answer
from braidmq.publish.unsettled import note
from braidmq.transport.trace_context import TRACING, TraceHeaders, trace_headers

T = TypeVar("T")

# One crossing between threads costs as much as some hundred messages.
_GATHERED_MESSAGES = 1024
_GATHERED_BYTES = 256 * 1024
_GATHERED_VALUE_BYTES = 32 * 1024
_MOST_GATHERINGS = 8
"""So many may wait beyond the limit of `max_pending_bytes`."""
_LONGEST_PAUSE_SECONDS = 0.005
_NO_TIMES = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of some messages. Without a result, it will never be known."""

    numbers: Sequence[int]
    result: Answer | Exception | None
    first_row: int


class SharedReceipts:
    """The receipts of messages that were handed over together, and the outcome of each: as `Receipts`.

    Outcomes come in the loop's thread; any thread may read them.
    """

    def __init__(self, loop: LoopThread, hand_over: Callable[[], Awaitable[None]]) -> None:
        self._loop, self._hand_over = loop, hand_over
        self._outcomes: list[_Outcome] = []
        self._awaited, self._told = set[int](), set[int]()
        self._changed = asyncio.Event()

    def acknowledge(self, numbers: Sequence[int], answer: Answer, first_row: int) -> None:
        """As `Receipts`."""
        self._add(_Outcome(numbers, answer, first_row))

    def fail(self, numbers: Sequence[int], failure: Exception) -> None:
        """As `Receipts`."""
        self._add(_Outcome(numbers, failure, 0))

    def abandon(self, numbers: Sequence[int]) -> None:
        """As `Receipts`."""
        self._add(_Outcome(numbers, None, 0))

    def are_asked(self, numbers: Sequence[int]) -> bool:
        """As `Receipts`."""
        return all(number in self._told or number in self._awaited for number in numbers)

    def have_told(self, numbers: Sequence[int]) -> bool:
        """As `Receipts`."""
        return self._told.issuperset(numbers)

    def failure(self, numbers: Sequence[int]) -> BaseException | None:
        """As `Receipts`."""
        found = self._find(numbers[0])
        if found is None or isinstance(found[0].result, Answer):
            return None
        return found[0].result or ClientClosed(ABANDONED)

    def is_done(self, number: int) -> bool:
        """Whether the outcome of a message is known."""
        return self._find(number) is not None

    def result(self, number: int) -> Acknowledgement:
        """Wait for the outcome of a message. Raises what the publish raised."""
        found = self._find(number)
        if found is None:
            self._awaited.add(number)
            try:
                found = self._loop.call(self._wait_for, number)
            except BaseException:  # an interrupted wait has returned no outcome
                self._awaited.discard(number)
                raise
        if not isinstance(found[0].result, Answer):
            # It matters only of failures whether they were reported.
            self._told.add(number)
        self._awaited.discard(number)
        return _acknowledgement(*found)

    def told(self, number: int) -> str:
        """The known state of a message, without asking its receipt."""
        found = self._find(number)
        if found is None:
            return "pending"
        what = found[0].result
        if what is None:
            return "cancelled"
        return f"failed: {what}" if isinstance(what, Exception) else str(_acknowledgement(*found))

    async def _wait_for(self, number: int) -> tuple[_Outcome, int]:
        await self._hand_over()
        while (found := self._find(number)) is None:
            self._changed.clear()
            await self._changed.wait()
        return found

    def _find(self, number: int) -> tuple[_Outcome, int] | None:
        """The outcome of a message, and which of the messages of that outcome it is."""
        for outcome in self._outcomes:
            numbers = outcome.numbers
            index = number - numbers.start if isinstance(numbers, range) else bisect_left(numbers, number)
            if 0 <= index < len(numbers) and numbers[index] == number:
                return outcome, index
        return None

    def _add(self, outcome: _Outcome) -> None:
        self._outcomes.append(outcome)
        self._changed.set()


def _acknowledgement(outcome: _Outcome, index: int) -> Acknowledgement:
    what = outcome.result
    if isinstance(what, Exception):
        raise what
    if what is None:
        raise ClientClosed(ABANDONED)
    return what.acknowledgement(outcome.first_row + index)


class Receipt:
    """The acknowledgement of one message, to wait for.

    If a failed receipt is never asked for, the producer's `flush` raises the failure, or the end of its `with` block.
    """

    __slots__ = ("_number", "_receipts")

    def __init__(self, receipts: SharedReceipts, number: int) -> None:
        self._receipts, self._number = receipts, number

    def __repr__(self) -> str:
        return f"<Receipt {self._receipts.told(self._number)}>"

    def done(self) -> bool:
        """Whether the acknowledgement, or the failure, has arrived."""
        return self._receipts.is_done(self._number)

    def result(self) -> Acknowledgement:
        """Wait for the acknowledgement and return it. Raises what the publish raised."""
        return self._receipts.result(self._number)


class _Gathering:
    """Messages that are handed over together.

    Their due time is set once it is known; `trace` is that of the first one that is in a trace.
    """

    __slots__ = ("due_seconds", "receipts", "rows", "trace")

    def __init__(self, receipts: SharedReceipts) -> None:
        self.rows, self.receipts = RowColumns(), receipts
        self.due_seconds: float | None = None
        self.trace: TraceHeaders = {}


class Producer:
    """Sends messages of one topic in batches, with one request in flight for each open segment; see `AsyncProducer`.

    Threads may share it. Small messages are gathered in the caller's thread and handed to the loop's thread together:
    one crossing for each message would cost more than sending it.
    """

    def __init__(self, loop: LoopThread, producer: AsyncProducer) -> None:
        self._loop, self._producer = loop, producer
        self._running, self._pending = loop.running, producer.pending
        self._value_bytes = min(_GATHERED_VALUE_BYTES, producer.upload_threshold_bytes)
        self._gathered_bytes = min(_GATHERED_BYTES, producer.timing.batch_bytes)
        self._lock = threading.Lock()
        # The last one gathers; those before it are full.
        self._gatherings = deque([self._new_gathering()])
        self._hand_over_lock = asyncio.Lock()
        producer.gathered = self._gathered

    def __repr__(self) -> str:
        return f"Producer({self._producer.topic!r}, id={self.producer_id!r})"

    @property
    def producer_id(self) -> str | None:
        """The id by which brokers know this producer; None if it is not idempotent."""
        return self._producer.producer_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave = self._producer.__aexit__
        if error is None or isinstance(error, Exception):
            self._loop.call_at_end(self._after_gathered, leave, kind, error, traceback)
        else:
            self._loop.call_at_end(leave, kind, error, traceback)

    def send(
        self,
        value: Value,
        *,
        key: Key = None,
        headers: Headers | None = None,
        event_time: datetime | None = None,
        deliver_at: datetime | None = None,
        delay: timedelta | None = None,
        expires_at: datetime | None = None,
    ) -> Receipt:
        """Take a message, waiting for room if necessary, and return its receipt.

        A value longer than the client's upload threshold is uploaded first. Raises `InvalidArgument` for a message
        that cannot be sent, `ClientClosed` after `close`, and whatever an upload raises.
        """
        # The usual case of most messages comes first, and inline: each further call would cost noticeable time.
        if (
            value.__class__ is bytes
            and (key is None or key.__class__ is bytes)
            and len(value) <= self._value_bytes
            and not headers
            and event_time is None
            and deliver_at is None
            and delay is None
            and expires_at is None
        ):
            size_bytes = len(key or b"") + len(value) + ROW_OVERHEAD_BYTES
            if self._pending.is_closed or not self._running.is_open or TRACING in modules:
                return self._gather(key, value, size_bytes)
            with self._lock:
                gathering = self._gatherings[-1]
                rows = gathering.rows
                number = len(rows.keys)
                if 0 < number < _GATHERED_MESSAGES and rows.size_bytes + size_bytes <= self._gathered_bytes:
                    rows.add_plain(key, value, size_bytes)
                    return Receipt(gathering.receipts, number)
            return self._gather(key, value, size_bytes)
        self._check_open()
        times = (event_time, deliver_at, delay, expires_at)
        if not is_inline(value, self._value_bytes):
            return self._send_alone(OutgoingMessage(value, key, headers or {}, *times))
        if headers or times != _NO_TIMES:
            message = OutgoingMessage(value, key, headers or {}, *times)
            row = row_of(message, upload=None, now_us=self._producer.timing.clock.now_us())
            return self._gather(row.key, row.value, row.size_bytes, row)
        key_data, data = key_bytes(key), value_bytes(value)[0]
        size_bytes = len(key_data or b"") + len(data or b"") + ROW_OVERHEAD_BYTES
        return self._gather(key_data, data, size_bytes, is_text=isinstance(value, str))

    def flush(self) -> None:
        """Send waiting messages and wait for all answers. Raises the first failure whose receipt was not asked for."""
        self._loop.call(self._after_gathered, self._producer.flush)

    def close(self) -> None:
        """Flush, then refuse further messages. Raises as `flush` does."""
        self._loop.call_at_end(self._after_gathered, self._producer.close)

    def _check_open(self) -> None:
        """Raise `ClientClosed` if the producer or its client has been closed, or belongs to the parent process."""
        self._running.check_process()
        self._producer.check_open()
        self._loop.check_open()

    def _gather(
        self, key: bytes | None, value: bytes | None, size_bytes: int, row: Row | None = None, *, is_text: bool = False
    ) -> Receipt:
        if self._pending.is_closed or not self._running.is_open:
            self._check_open()
        with self._lock:
            gathering = self._gatherings[-1]
            rows = gathering.rows
            number = len(rows.keys)
            if number and (number >= _GATHERED_MESSAGES or rows.size_bytes + size_bytes > self._gathered_bytes):
                gathering, number = self._new_gathering(), 0
                rows = gathering.rows
                self._gatherings.append(gathering)
            if row is not None:
                rows.add(row)
            elif is_text and value is not None:
                rows.add_text(key, value, size_bytes)
            else:
                rows.add_plain(key, value, size_bytes)
            if TRACING in modules and not gathering.trace:
                gathering.trace = trace_headers()
        if not number:
            self._announce()
        return Receipt(gathering.receipts, number)

    def _gathered(self) -> int:
        return sum(len(gathering.rows) for gathering in list(self._gatherings))

    def _announce(self) -> None:
        """Signal to the loop that a gathering has its first message. If many wait, wait for room."""
        note(self._producer)
        if len(self._gatherings) > _MOST_GATHERINGS:
            self._loop.call(self._hand_over)
        else:
            self._loop.start(self._hand_over_soon)

    def _send_alone(self, message: OutgoingMessage) -> Receipt:
        receipts = self._new_gathering().receipts
        self._loop.call(self._after_gathered, self._producer.send_to, message, receipts)
        return Receipt(receipts, 0)

    def _new_gathering(self) -> _Gathering:
        return _Gathering(SharedReceipts(self._loop, self._hand_over))

    async def _hand_over_soon(self) -> None:
        """Hand over full gatherings now, and others after a part of the time for which a batch lingers anyway."""
        gathering, timing = self._gatherings[-1], self._producer.timing
        gathering.due_seconds = self._producer.due_seconds()
        await self._hand_over(but=1)
        await timing.clock.sleep(min(timing.linger_seconds / 2, _LONGEST_PAUSE_SECONDS))
        with self._lock:
            is_waiting = any(each is gathering for each in self._gatherings)
        if is_waiting:
            await self._hand_over()

    async def _hand_over(self, *, but: int = 0) -> None:
        """Give the gathered messages to the producer, in order; not the last gatherings, if so many may be kept."""
        async with self._hand_over_lock:
            # Not those that come meanwhile: a caller that waits for this waits for no others.
            for _ in range(len(self._gatherings) - but):
                with self._lock:
                    gathering = self._gatherings[0]
                    if gathering is self._gatherings[-1]:
                        self._gatherings.append(self._new_gathering())
                if gathering.rows:
                    await self._give(gathering)
                # Only now: a caller that is interrupted while it waits for room leaves it to the next one.
                self._gatherings.popleft()

    async def _give(self, gathering: _Gathering) -> None:
        due_seconds = gathering.due_seconds or self._producer.due_seconds()
        try:
            await self._producer.send_rows(gathering.rows, gathering.receipts, due_seconds, gathering.trace)
        except Exception as failure:  # whatever it is, it belongs to the callers that wait for the receipts
            gathering.receipts.fail(range(len(gathering.rows)), failure)

    async def _after_gathered(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        await self._hand_over()
        return await function(*args)
