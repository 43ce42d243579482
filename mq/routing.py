"""Cutting a publish by key range: which rows go to which open segment."""

import asyncio
import bisect
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from filer.next_file import Payload
from filer.requests import Position, RequestId
from filer.segment_writer import WriterState
from filer.slots import slots_of


class Knowledge(Protocol):
    """What is known of producers where a segment is written."""

    @property
    def complete(self) -> bool:
        """Whether requests with an id can be taken."""
        ...

    async def wait(self) -> None:
        """Wait until they can."""
        ...


class Appender(Protocol):
    """Takes messages for one open segment: its writer here, or the way to its owner."""

    @property
    def state(self) -> WriterState:
        """Only `OPEN` takes messages."""
        ...

    @property
    def inheritance(self) -> Knowledge:
        """What its predecessors knew of producers."""
        ...

    def append(
        self, payload: Payload, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> asyncio.Future[list[Position]]:
        """Accept messages; the future tells where they are. Raises `SegmentSealed`, `SegmentMoved`, `SequenceExpired`.

        With a `request`, once the `inheritance` is complete.
        """
        ...

    def check_sequence(self, payload: Payload, request: RequestId) -> None:
        """Raise `SequenceExpired` where it is known already that `append` would."""
        ...


class Route:
    """The open segments of a topic in key order, with what takes messages for each."""

    def __init__(self, segments: Sequence[tuple[int, int, Appender]]) -> None:
        self.ids = [segment_id for segment_id, _, _ in segments]
        self.writers = [writer for _, _, writer in segments]
        self._first_slots = [start for _, start, _ in segments]
        self._starts = np.array(self._first_slots, dtype=np.int64)

    def place_of_slot(self, slot: int) -> int:
        """Which of the open segments takes a slot, as a place in `ids` and `writers`."""
        return bisect.bisect_right(self._first_slots, slot) - 1

    def cut(self, rows: pa.RecordBatch, *, null_slot: int) -> list[tuple[int, pa.RecordBatch]]:
        """The rows of each touched segment, in the order of the request, as (place, rows)."""
        if len(self.ids) == 1:
            return [(0, rows)]
        places = self._places(rows, null_slot)
        counts = np.bincount(places, minlength=len(self.ids))
        touched = np.flatnonzero(counts)
        if len(touched) == 1:
            return [(int(touched[0]), rows)]
        by_segment = _reorder(rows, pa.array(np.argsort(places.astype(np.uint16), kind="stable")))
        ends = np.cumsum(counts)
        return [(int(p), by_segment.slice(int(ends[p] - counts[p]), int(counts[p]))) for p in touched]

    def rows_of(self, rows: pa.RecordBatch, segments: Sequence[int], *, null_slot: int) -> pa.RecordBatch:
        """The rows that `cut` gives to these segments, in the order of the request."""
        wanted = np.isin(np.array(self.ids)[self._places(rows, null_slot)], segments)
        return rows.filter(pa.array(wanted))

    def _places(self, rows: pa.RecordBatch, null_slot: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
        slots = slots_of(rows["key"], null_slot=null_slot)
        return np.searchsorted(self._starts, slots, side="right") - 1


def _reorder(rows: pa.RecordBatch, order: pa.Array) -> pa.RecordBatch:
    """The rows in another order; columns of nulls, which most are, need no work."""
    columns = [column if column.null_count == len(column) else column.take(order) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
