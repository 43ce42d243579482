"""The rows of a request that go to one segment. They are put together only when something needs them.

Each segment of a request takes its share of the same columns. If messages are plain, a file takes them as Parquet has
them, which is made once for all segments of the request. Columns are made only for readers from memory or over the
network.
"""

import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filer.format.plain.prefixed import Texts, prefixed

_MOST_BYTES = 2**30
_LONG_BYTES = 64 * 1024
"""Values that are this long on average are copied to the file one by one, and not before."""


class PlainTexts(NamedTuple):
    """The keys and values of all rows of a request, in the order of its segments."""

    keys: Texts | None
    values: Texts


class RequestRows:
    """The rows of a request, and the order in which its segments store them: None if it is their own.

    Any number of threads may ask for `plain`.
    """

    __slots__ = ("_is_plain", "_lock", "_plain", "order", "rows")

    def __init__(self, rows: pa.RecordBatch, order: npt.NDArray[np.int32] | None = None) -> None:
        self.rows, self.order = rows, order
        self._lock = threading.Lock()
        self._plain: PlainTexts | None = None
        self._is_plain: bool | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the messages are plain, as `is_plain` of a table says, have no event times, and are not too large."""
        if self._is_plain is None:
            self._is_plain = _are_plain(self.rows)
        return self._is_plain

    def plain(self) -> PlainTexts:
        """The keys and values as Parquet has them, if the messages are plain. They are made once."""
        with self._lock:
            if self._plain is None:
                key, value = self.rows["key"], self.rows["value"]
                keys = None if key.null_count else prefixed(key, self.order)
                self._plain = PlainTexts(keys, prefixed(value, self.order))
            return self._plain


class CutRows:
    """The rows from `start` to `stop` of a request, in the order of its segments: those of one segment."""

    __slots__ = ("_whole", "num_rows", "start")

    def __init__(self, whole: RequestRows, start: int, stop: int) -> None:
        self.start, self.num_rows = start, stop - start
        self._whole = whole

    @property
    def whole(self) -> RequestRows:
        """The request."""
        return self._whole

    def batch(self) -> pa.RecordBatch:
        """These rows as columns. They are copied, unless the request has one segment."""
        rows, order = self._whole.rows, self._whole.order
        if order is None:
            return rows.slice(self.start, self.num_rows)
        picked = pa.array(order[self.start : self.start + self.num_rows])
        return pa.RecordBatch.from_arrays([_taken(column, picked) for column in rows.columns], schema=rows.schema)

    def picked(self, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """The keys and values of the rows with these numbers; these rows count from 0."""
        rows, order = self._whole.rows.select(["key", "value"]), self._whole.order
        taken = numbers + self.start
        return rows.take(pa.array(taken if order is None else order[taken]))

    def texts(self) -> PlainTexts:
        """These rows as Parquet has them, if the messages are plain."""
        keys, values = self._whole.plain()
        start, stop = self.start, self.start + self.num_rows
        return PlainTexts(None if keys is None else keys.between(start, stop), values.between(start, stop))

    def from_row(self, first: int) -> "CutRows":
        """Without the first rows."""
        return CutRows(self._whole, self.start + first, self.start + self.num_rows)

    def without_texts(self) -> "CutRows":
        """The same rows. They hold nothing that only files are made of."""
        return CutRows(RequestRows(self._whole.rows, self._whole.order), self.start, self.start + self.num_rows)


def _taken(column: pa.Array, picked: pa.Array) -> pa.Array:
    """These rows of a column. Columns of nulls, which are most of them, need no work."""
    return column.slice(0, len(picked)) if column.null_count == len(column) else column.take(picked)


def _are_plain(rows: pa.RecordBatch) -> bool:
    count = rows.num_rows
    return (
        count > 0
        and "_topic" not in rows.schema.names
        and rows["value"].null_count == 0
        and rows["key"].null_count in (0, count)
        and rows["event_time"].null_count == rows["headers"].null_count == rows["_ref"].null_count == count
        and max(rows["key"].nbytes, rows["value"].nbytes) < min(_MOST_BYTES, _LONG_BYTES * count)
    )
