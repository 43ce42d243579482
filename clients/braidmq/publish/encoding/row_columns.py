"""Messages as they are sent, column by column: a list for each part, and no object for each message."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Self, TypeVar

from braidmq.publish.encoding.outgoing import ROW_OVERHEAD_BYTES, Row, Upload, row_headers_bytes

RowHeaders = tuple[tuple[str, bytes], ...]
T = TypeVar("T")


class RowColumns:
    """Messages in order. A part that no message has is None: `headers`, `event_times_us`, `uploads`, `texts`.

    `texts` says of each whether its value was given as text.

    `size_bytes` is about their size in a request.
    """

    __slots__ = ("event_times_us", "headers", "keys", "size_bytes", "texts", "uploads", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[RowHeaders] | None = None
        self.event_times_us: list[int | None] | None = None
        self.uploads: list[Upload | None] | None = None
        self.texts: list[bool] | None = None
        self.size_bytes = 0

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """The columns of some rows."""
        columns = cls()
        for row in rows:
            columns.add(row)
        return columns

    def __len__(self) -> int:
        return len(self.keys)

    def add_plain(self, key: bytes | None, value: bytes | None, size_bytes: int) -> None:
        """Append a message that has only these parts, and whose size is known."""
        self.keys.append(key)
        self.values.append(value)
        self.size_bytes += size_bytes
        if self.headers is not None:
            self.headers.append(())
        if self.event_times_us is not None:
            self.event_times_us.append(None)
        if self.uploads is not None:
            self.uploads.append(None)
        if self.texts is not None:
            self.texts.append(False)

    def add_text(self, key: bytes | None, value: bytes, size_bytes: int) -> None:
        """As `add_plain`, for a value that was given as text."""
        self.add_plain(key, value, size_bytes)
        if self.texts is None:
            self.texts = [False] * len(self.keys)
        self.texts[-1] = True

    def add(self, row: Row) -> None:
        """Append a message."""
        before = len(self.keys)
        if row.is_text and row.value is not None:
            self.add_text(row.key, row.value, row.size_bytes)
        else:
            self.add_plain(row.key, row.value, row.size_bytes)
        if row.headers:
            self.headers = self.headers or [()] * (before + 1)
            self.headers[before] = row.headers
        if row.event_time_us is not None:
            self.event_times_us = self.event_times_us or [None] * (before + 1)
            self.event_times_us[before] = row.event_time_us
        if row.upload is not None:
            self.uploads = self.uploads or [None] * (before + 1)
            self.uploads[before] = row.upload

    def sizes_bytes(self) -> list[int]:
        """About how much each message takes in a request."""
        sizes = [
            len(key or b"") + len(value or b"") + ROW_OVERHEAD_BYTES
            for key, value in zip(self.keys, self.values, strict=True)
        ]
        if self.headers is None:
            return sizes
        return [size + row_headers_bytes(each) for size, each in zip(sizes, self.headers, strict=True)]

    def rows_within(self, size_bytes: int) -> int:
        """How many of the first messages take at most that much together."""
        return bisect_right(list(accumulate(self.sizes_bytes())), size_bytes)

    def cut(self, row: int) -> tuple["RowColumns", "RowColumns"]:
        """The messages before that one, and the others."""
        first, second = RowColumns(), RowColumns()
        first.keys, second.keys = self.keys[:row], self.keys[row:]
        first.values, second.values = self.values[:row], self.values[row:]
        first.headers, second.headers = _cut(self.headers, row)
        first.event_times_us, second.event_times_us = _cut(self.event_times_us, row)
        first.uploads, second.uploads = _cut(self.uploads, row)
        first.texts, second.texts = _cut(self.texts, row)
        first.size_bytes = first._measured_bytes()
        second.size_bytes = self.size_bytes - first.size_bytes
        return first, second

    def take(self, rows: Sequence[int]) -> "RowColumns":
        """Those messages, in that order."""
        taken = RowColumns()
        taken.keys = [self.keys[row] for row in rows]
        taken.values = [self.values[row] for row in rows]
        taken.headers = _taken(self.headers, rows)
        taken.event_times_us = _taken(self.event_times_us, rows)
        taken.uploads = _taken(self.uploads, rows)
        taken.texts = _taken(self.texts, rows)
        taken.size_bytes = taken._measured_bytes()
        return taken

    def _measured_bytes(self) -> int:
        headers = sum(map(row_headers_bytes, self.headers or ()))
        data = sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))
        return data + headers + len(self) * ROW_OVERHEAD_BYTES


def joined(parts: Sequence[RowColumns]) -> RowColumns:
    """The messages of all parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    whole = RowColumns()
    whole.keys = list(chain.from_iterable(part.keys for part in parts))
    whole.values = list(chain.from_iterable(part.values for part in parts))
    whole.headers = _joined([(part.headers, len(part)) for part in parts], ())
    whole.event_times_us = _joined([(part.event_times_us, len(part)) for part in parts], None)
    whole.uploads = _joined([(part.uploads, len(part)) for part in parts], None)
    whole.texts = _joined([(part.texts, len(part)) for part in parts], False)
    whole.size_bytes = sum(part.size_bytes for part in parts)
    return whole


def _cut(column: list[T] | None, row: int) -> tuple[list[T] | None, list[T] | None]:
    return (None, None) if column is None else (column[:row], column[row:])


def _taken(column: list[T] | None, rows: Sequence[int]) -> list[T] | None:
    return None if column is None else [column[row] for row in rows]


def _joined(parts: Sequence[tuple[list[T] | None, int]], without: T) -> list[T] | None:
    if all(column is None for column, _ in parts):
        return None
    return list(chain.from_iterable([without] * rows if column is None else column for column, rows in parts))
