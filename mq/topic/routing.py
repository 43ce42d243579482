"""Cuts a publish by key range: decides which rows go to which open segment."""

import asyncio
import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from filer.errors import SegmentMoved
from filer.format.requests import Position, RequestId
from filer.format.slot_columns import slots_of
from filer.segment.cut_rows import CutRows, RequestRows
from filer.segment.next_file import Payload, Single


class InheritedWindows(Protocol):
    """The producer windows that a segment has from its predecessors."""

    @property
    def complete(self) -> bool:
        """Whether they are known, so that requests with an id can be accepted."""
        ...

    async def wait(self) -> None:
        """Wait until they are complete."""
        ...


class Appender(Protocol):
    """Takes messages for one open segment: this broker's writer, or a `RemoteSegment` that forwards to the owner."""

    @property
    def is_open(self) -> bool:
        """Whether it accepts messages."""
        ...

    @property
    def is_sealing(self) -> bool:
        """Whether this broker is sealing the segment."""
        ...

    @property
    def is_sealed(self) -> bool:
        """Whether this broker has sealed the segment."""
        ...

    @property
    def inheritance(self) -> InheritedWindows:
        """The producer windows that the segment has from its predecessors."""
        ...

    def append(
        self, payload: Payload, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> asyncio.Future[list[Position]]:
        """Accept messages. The future resolves to their positions once they are acknowledged.

        A `request` may be passed only once the `inheritance` is complete. Raises `SegmentSealed`, `SegmentMoved`, and
        `SequenceExpired` and `ProducerTaken`.
        """
        ...

    def gather(
        self, single: Single, size_bytes: int, together: object
    ) -> tuple[asyncio.Future[list[Position]], int] | None:
        """As `append` for one message, which may share its future with those right before it of the same `together`.

        The future resolves to the position of the first of them; the number is this one's place. None if it has to be
        appended by itself. Raises as `append`.
        """
        ...

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """Raise `SequenceExpired` or `ProducerTaken` if it is already known that `append` would."""
        ...


class _NoOwner:
    """Takes nothing: the segment has no writer yet."""

    is_open = is_sealing = is_sealed = False

    @property
    def inheritance(self) -> InheritedWindows:
        raise SegmentMoved()

    def append(
        self, payload: Payload, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> asyncio.Future[list[Position]]:
        raise SegmentMoved()

    def gather(
        self, single: Single, size_bytes: int, together: object
    ) -> tuple[asyncio.Future[list[Position]], int] | None:
        raise SegmentMoved()

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        raise SegmentMoved()


NO_OWNER: Appender = _NoOwner()


class Route:
    """The open segments of a topic in key order, each with its appender."""

    def __init__(self, segments: Sequence[tuple[int, int, Appender]]) -> None:
        """Make a route of segments as (id, first slot, appender)."""
        self.ids = [segment_id for segment_id, _, _ in segments]
        self.appenders = [appender for _, _, appender in segments]
        self._first_slots = [start for _, start, _ in segments]
        self._starts = np.array(self._first_slots, dtype=np.int64)

    def segment_index(self, slot: int) -> int:
        """Return the index in `ids` and `appenders` of a slot's segment; -1 if there is no segment."""
        return bisect.bisect_right(self._first_slots, slot) - 1

    def cut(self, rows: pa.RecordBatch, *, null_slot: int) -> list[tuple[int, CutRows]]:
        """Return the rows for each segment, in the order of the request, as (segment index, rows)."""
        count = rows.num_rows
        if len(self.ids) == 1:
            return [(0, CutRows(RequestRows(rows), 0, count))]
        indices = self._segment_indices(rows, null_slot)
        counts = np.bincount(indices, minlength=len(self.ids))
        touched = np.flatnonzero(counts)
        if len(touched) == 1:
            return [(int(touched[0]), CutRows(RequestRows(rows), 0, count))]
        whole = RequestRows(rows, np.argsort(indices.astype(np.uint16), kind="stable").astype(np.int32))
        stops = np.cumsum(counts).tolist()
        return [
            (i, CutRows(whole, start, stop)) for i, (start, stop) in enumerate(pairwise([0, *stops])) if start < stop
        ]

    def rows_of(self, rows: pa.RecordBatch, segments: Sequence[int], *, null_slot: int) -> pa.RecordBatch:
        """Return the rows that `cut` gives to the segments with these ids, in the order of the request."""
        wanted = np.isin(np.array(self.ids)[self._segment_indices(rows, null_slot)], segments)
        return rows.filter(pa.array(wanted))

    def _segment_indices(self, rows: pa.RecordBatch, null_slot: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
        slots = slots_of(rows["key"], null_slot=null_slot)
        return np.searchsorted(self._starts, slots, side="right") - 1
