"""What an owner has accepted and not stored yet, in the order of its offsets."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from filer import tracing
from filer.clock import Clock
from filer.format.requests import Position, RequestId, StoredRequest
from filer.segment.deduplication import check_owner, deduplicate
from filer.segment.next_file import Accepted, Payload, Single, Singles
from filer.segment.producer_owners import differ
from filer.segment.segment_index import SegmentIndex
from filer.segment.writer.pending_request import PendingRequest, Waiter
from filer.segment.writer.replicated_acks import Acknowledgements

MOST_GATHERED, MOST_GATHERED_BYTES = 1024, 1024 * 1024
"""At most so many messages share a waiter: all of them go to the same file, and a file ends with whole requests."""


_NOTHING: Mapping[int, PendingRequest] = {}


@dataclass(slots=True)
class _Gathering:
    """The last pending request, if it is of single messages and takes more of them."""

    pending: PendingRequest
    singles: Singles
    waiter: Waiter
    together: object


class PublishQueue:
    """Gives accepted requests their offsets and timestamps, and batches them for the next file.

    `pending` are the requests for coming files, `in_flight` those of the file that is being put. `size_bytes` counts
    both. `on_full` is called whenever they are `flush_bytes` or more. `log_now_us` is the time by which producers are
    silent.
    """

    def __init__(
        self,
        clock: Clock,
        index: SegmentIndex,
        acks: Acknowledgements,
        *,
        flush_bytes: int,
        on_full: Callable[[], None],
        log_now_us: Callable[[], int],
    ) -> None:
        self.pending: list[PendingRequest] = []
        self.in_flight: Sequence[PendingRequest] = ()
        self.size_bytes = 0
        self.end = index.end
        self.last_timestamp_us = index.last_timestamp_us
        # Set while there may be something to store.
        self.has_work = asyncio.Event()
        self._clock, self._index, self._acks = clock, index, acks
        self._flush_bytes, self._on_full, self._log_now_us = flush_bytes, on_full, log_now_us
        self._most_gathered_bytes = min(MOST_GATHERED_BYTES, flush_bytes)
        # Requests with an id that are accepted and not stored yet, by producer and sequence: a repetition waits for the
        # same outcome.
        self._unanswered: dict[str, dict[int, PendingRequest]] = {}
        self._gathering: _Gathering | None = None
        self._loop = asyncio.get_running_loop()

    def add(
        self,
        payload: Payload,
        size_bytes: int,
        request: RequestId | None = None,
        known: Sequence[Position] = (),
        *,
        replicated: bool,
    ) -> Waiter:
        """Accept messages for the next file. The future resolves to their positions, `known` ones first."""
        count = 1 if isinstance(payload, Single) else payload.num_rows
        self.last_timestamp_us = timestamp_us = max(self._clock.now_us(), self.last_timestamp_us)
        waiter: Waiter = self._loop.create_future()
        span = tracing.current().child("queue")
        span.end_with(waiter)
        pending = PendingRequest(payload, self.end, count, size_bytes, timestamp_us, request, span, known)
        self._gathering = None
        self._take(pending, waiter, replicated=replicated)
        return waiter

    def _take(self, pending: PendingRequest, waiter: Waiter, *, replicated: bool) -> None:
        self.pending.append(pending)
        self.end += pending.count
        self.size_bytes += pending.size_bytes
        self._acks.accept(pending, waiter, replicated=replicated)
        self.has_work.set()
        if self.size_bytes >= self._flush_bytes:
            self._on_full()

    def gather(self, single: Single, size_bytes: int, together: object) -> tuple[Waiter, int] | None:
        """As `add`, of a message that shares a waiter with those right before it; also its number among them.

        The messages have the same `together`, and go to a file that is not begun; the waiter gets the position of the
        first. None if followers get each message as it comes.
        """
        if not self._acks.may_gather:
            return None
        self.last_timestamp_us = timestamp_us = max(self._clock.now_us(), self.last_timestamp_us)
        gathering = self._gathering
        if (
            gathering is None
            or gathering.together is not together
            or gathering.pending.count >= MOST_GATHERED
            or gathering.pending.size_bytes + size_bytes > self._most_gathered_bytes
        ):
            return self._begin_gathering(single, size_bytes, timestamp_us, together), 0
        pending, singles = gathering.pending, gathering.singles
        number = pending.count
        singles.messages.append(single)
        singles.stamps_us.append(timestamp_us)
        pending.count = number + 1
        pending.size_bytes += size_bytes
        self.end += 1
        self.size_bytes += size_bytes
        if self.size_bytes >= self._flush_bytes:
            self._on_full()
        return gathering.waiter, number

    def _begin_gathering(self, single: Single, size_bytes: int, timestamp_us: int, together: object) -> Waiter:
        waiter: Waiter = self._loop.create_future()
        singles = Singles([single], [timestamp_us])
        pending = PendingRequest(singles, self.end, 1, size_bytes, timestamp_us)
        self._take(pending, waiter, replicated=False)
        self._gathering = _Gathering(pending, singles, waiter, together)
        return waiter

    def add_once(self, payload: Payload, size_bytes: int, request: RequestId, *, replicated: bool) -> Waiter:
        """As `add`, of a request with an id: only what is not stored yet. Raises `SequenceExpired`, `ProducerTaken`.

        If a caller stops waiting, others that wait for the same request still get their answer.
        """
        unanswered = self._check_owner(request)
        if (first := unanswered.get(request.sequence)) is not None:
            repetition: Waiter = self._loop.create_future()
            self._acks.add_waiter(first, repetition, replicated=replicated)
            return repetition
        known, new = deduplicate(self._index.windows, request, payload)
        if new is None:
            answered: Waiter = self._loop.create_future()
            answered.set_result(known)
            return answered
        if not isinstance(payload, Single) and not isinstance(new, Single):
            size_bytes = size_bytes * new.num_rows // payload.num_rows
        waiter = self.add(new, size_bytes, request, known, replicated=replicated)
        self._unanswered.setdefault(request.producer, {})[request.sequence] = self.pending[-1]
        return waiter

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """Raise `SequenceExpired` or `ProducerTaken` if `add_once` would."""
        if request.sequence not in self._check_owner(request):
            deduplicate(self._index.windows, request, payload)

    def _check_owner(self, request: RequestId) -> Mapping[int, PendingRequest]:
        """The unanswered requests of its producer, by sequence. Raises `ProducerTaken` if another one owns it."""
        windows = self._index.windows
        if differ(windows.owner_of(request.producer), request.owner):
            # Nothing may have been stored here since that producer's hour was over. A recovery does not count what this
            # forgets either, once the request is stored; and if it is never stored, a recovery remembers more.
            windows.expire(self._log_now_us())
            check_owner(request, windows.owner_of(request.producer))
        unanswered = self._unanswered.get(request.producer)
        if unanswered is None:
            return _NOTHING
        if request.owner:
            # All that have an owner have the same one.
            check_owner(request, next((each for each in map(_owner_of, unanswered.values()) if each), ""))
        return unanswered

    def unstored(self) -> Sequence[Accepted]:
        """All requests that are accepted and not stored, in order."""
        return (*self.in_flight, *self.pending)

    def last_unstored(self) -> PendingRequest | None:
        """The newest request that is not stored; files are stored in order, so all others are stored before it."""
        return next(iter([*self.pending[-1:], *self.in_flight[-1:]]), None)

    def take_batch(self) -> Sequence[PendingRequest]:
        """Put the next requests in flight: whole requests, about `flush_bytes`, at least one if there is one."""
        self._gathering = None
        size_bytes = taken = 0
        for request in self.pending:
            if taken and size_bytes + request.size_bytes > self._flush_bytes:
                break
            size_bytes += request.size_bytes
            taken += 1
        if taken == len(self.pending):
            self.in_flight, self.pending = self.pending, []
        else:
            self.in_flight, self.pending = self.pending[:taken], self.pending[taken:]
        return self.in_flight

    def abandon(self) -> int:
        """Mark the requests that no caller waits for any more; returns the memory that they take, in bytes."""
        found_bytes = 0
        for pending in (*self.in_flight, *self.pending):
            if not pending.abandoned and not pending.answered_early and not pending.is_awaited:
                pending.abandoned = True
                found_bytes += pending.held_bytes
        return found_bytes

    def stored(self, batch: Sequence[PendingRequest], requests: Sequence[StoredRequest]) -> int:
        """Forget what has been stored; returns its size in bytes."""
        for request, _ in requests:
            if (unanswered := self._unanswered.get(request.producer)) is not None:
                unanswered.pop(request.sequence, None)
                if not unanswered:
                    del self._unanswered[request.producer]
        size_bytes = sum(pending.size_bytes for pending in batch)
        self.size_bytes -= size_bytes
        return size_bytes

    def clear(self) -> None:
        """Forget everything: this owner stores no more."""
        self._gathering = None
        self.pending.clear()
        self.size_bytes = 0
        self._unanswered.clear()
        self.has_work.set()


def _owner_of(pending: PendingRequest) -> str:
    return "" if pending.request is None else pending.request.owner
