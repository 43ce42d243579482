"""The next file of a segment: from accepted messages to columns, to Parquet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filer.format.digests import stated_footer_digest
from filer.format.nulls import null_column
from filer.format.plain.few_messages import MOST_BYTES, MOST_MESSAGES
from filer.format.requests import Position, RequestId, StoredRequest
from filer.format.schema import OFFSET_FIELD, TIMESTAMP
from filer.format.segment_file import Footer, count_refs, encode, encode_few, encode_texts
from filer.keys import FileName
from filer.segment.cut_rows import CutRows, RequestRows
from filer.segment.later_table import LaterTable, RowNumbers, Rows
from filer.segment.live_files import FileFacts
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_log import SegmentRef
from filer.tracing import NO_SPAN, Span

# The memory of an accepted request besides its messages. For a single small message this is nearly all of it.
ACCEPTED_OVERHEAD_BYTES = 1024
SINGLE_ROW_BYTES = 128
"""The memory of a message by itself beside its data."""
_PICKED_ROW_BYTES = 4
_SMALL_REQUEST_BYTES = 32 * 1024
"""Several requests below this size on average become a table: joining them before encoding takes less time."""
_LARGE_BYTES = 1024 * 1024
"""A value of this size is not copied to its column: the copy would stop the process, and be held twice."""


@dataclass(slots=True)
class Single:
    """One message that was published by itself. Writing a file joins such messages into columns."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] | None
    event_time_us: int | None


Payload: TypeAlias = "pa.RecordBatch | CutRows | Single"


@dataclass(slots=True)
class Singles:
    """Messages of many requests, one each, in the order in which they were accepted, and the time of each."""

    messages: list[Single]
    stamps_us: list[int]


@dataclass(slots=True)
class Accepted:
    """A request's share of a segment, with the offset of its first message and the time at which it was accepted.

    Or the messages of several requests (`Singles`), and the time of the first. `span` is the step in which it waits for
    its file.
    """

    payload: "Payload | Singles"
    base: int
    count: int
    size_bytes: int
    timestamp_us: int
    request: RequestId | None = None
    span: Span = NO_SPAN

    @property
    def end(self) -> int:
        """The offset after its last message."""
        return self.base + self.count

    @property
    def held_bytes(self) -> int:
        """The approximate memory that it takes once its publisher has an answer."""
        requests = len(self.payload.messages) if isinstance(self.payload, Singles) else 1
        return self.size_bytes + ACCEPTED_OVERHEAD_BYTES * requests

    @property
    def last_timestamp_us(self) -> int:
        """The time of its last message."""
        return self.payload.stamps_us[-1] if isinstance(self.payload, Singles) else self.timestamp_us


@dataclass(frozen=True, slots=True)
class _Few:
    """Plain messages that are few enough to be written without a table. The first of them is at offset `base`."""

    ref: SegmentRef
    base: int
    stamps_us: list[int]
    keys: list[bytes] | None
    values: list[bytes]


def _table_of_few(files: "Sequence[_Few]") -> pa.Table:
    """As `join`, of files that follow each other."""
    ref, base = files[0].ref, files[0].base
    keys: list[bytes | None] = []
    values: list[bytes] = []
    stamps_us: list[int] = []
    for few in files:
        keys += few.keys or [None] * len(few.values)
        values += few.values
        stamps_us += few.stamps_us
    schema, nothing = ref.schema.rows, [None] * len(values)
    columns = _columns_of(keys, values, nothing, nothing, schema)
    return in_places(ref, columns, np.array(stamps_us, np.int64), base)


def _few(ref: SegmentRef, base: int, batch: Sequence[Accepted]) -> _Few | None:
    """The messages, if each came by itself, and they are plain and few."""
    messages: list[Single] = []
    stamps_us: list[int] = []
    for each in batch:
        if isinstance(each.payload, Singles):
            messages += each.payload.messages
            stamps_us += each.payload.stamps_us
        elif isinstance(each.payload, Single):
            messages.append(each.payload)
            stamps_us.append(each.timestamp_us)
        else:
            return None
        if len(messages) > MOST_MESSAGES:
            return None
    if not messages:
        return None
    keys: list[bytes] = []
    values: list[bytes] = []
    for message in messages:
        if message.value is None or message.headers is not None or message.event_time_us is not None:
            return None
        values.append(message.value)
        if message.key is not None:
            keys.append(message.key)
    if (keys and len(keys) < len(values)) or sum(map(len, keys)) + sum(map(len, values)) > MOST_BYTES:
        return None
    return _Few(ref, base, stamps_us, keys or None, values)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The plain messages of requests, whose texts are given as Parquet has them."""

    ref: SegmentRef
    requests: list[Accepted]

    def encode(self, footer: Footer) -> tuple[pa.Buffer, str]:
        """The file and its link."""
        stamps_us = [(each.count, each.timestamp_us) for each in self.requests]
        texts = [each.payload.texts() for each in self.requests if isinstance(each.payload, CutRows)]
        keys = [each.keys for each in texts if each.keys is not None]
        return encode_texts(self.ref.schema, footer, stamps_us, keys or None, [each.values for each in texts])

    def without_texts(self) -> "_Cut":
        """The source of their table, without what is held only until the file is made."""
        return _Cut(
            self.ref,
            [
                Accepted(each.payload.without_texts(), each.base, each.count, each.size_bytes, each.timestamp_us)
                for each in self.requests
                if isinstance(each.payload, CutRows)
            ],
        )


def _table_of_cut(files: Sequence[_Cut]) -> pa.Table:
    """As `join`, of files that follow each other."""
    return join(files[0].ref, [each for file in files for each in file.requests], files[0].requests[0].base)


def _picked_of_cut(file: _Cut, numbers: RowNumbers) -> pa.Table:
    """The keys and values of these rows of a file."""
    first, batches = file.requests[0].base, []
    for request in file.requests:
        start, stop = np.searchsorted(numbers, [request.base - first, request.end - first])
        if isinstance(request.payload, CutRows) and start < stop:
            batches.append(request.payload.picked(numbers[start:stop] - (request.base - first)))
    schema = file.ref.schema.rows
    return pa.Table.from_batches(batches, pa.schema([schema.field("key"), schema.field("value")]))


def _cut(ref: SegmentRef, batch: Sequence[Accepted]) -> _Cut | None:
    """The requests, if all have plain messages, with keys or without, and are so large that joining costs more."""
    requests: list[Accepted] = []
    size_bytes = 0
    with_keys: set[bool] = set()
    for each in batch:
        payload = (
            CutRows(RequestRows(each.payload), 0, each.count)
            if isinstance(each.payload, pa.RecordBatch)
            else each.payload
        )
        if not isinstance(payload, CutRows) or not payload.whole.is_plain:
            return None
        size_bytes += payload.whole.rows["value"].nbytes
        with_keys.add(payload.whole.rows["key"].null_count == 0)
        requests.append(Accepted(payload, each.base, each.count, each.size_bytes, each.timestamp_us))
    if len(with_keys) != 1 or (len(requests) > 1 and size_bytes < _SMALL_REQUEST_BYTES * len(requests)):
        return None
    return _Cut(ref, requests)


class NextFile:
    """The next file of a segment: encoded when the store first asks for its bytes, and never encoded again.

    `previous` is the link of the file before it in the chain of digests (`SegmentIndex.link`). Once it is encoded,
    `link` is what the file after it names as `previous`.
    """

    def __init__(self, ref: SegmentRef, batch: Sequence[Accepted], base: int, writer: str, previous: str) -> None:
        self.writer, self._previous = writer, previous
        self.rows: Rows
        self.footer: Footer
        self.link = ""
        self._ref, self._batch, self._base = ref, batch, base
        self._windows: ProducerWindows | None = None
        self._last_us = self._log_us = 0
        self._data: pa.Buffer | bytes | None = None

    def seal_with(self, windows: ProducerWindows, last_us: int, log_us: int) -> None:
        """Make it the seal. `windows` are those of all files before it, `last_us` is the time of its requests.

        Producers that are silent for an hour at the log's time `log_us` are forgotten.
        """
        self._windows, self._last_us, self._log_us = windows, last_us, log_us

    @property
    def size_bytes(self) -> int:
        """The size of the encoded file; 0 before it is encoded."""
        return 0 if self._data is None else memoryview(self._data).nbytes

    @property
    def facts(self) -> FileFacts:
        """The file's entry for the index, once it is stored."""
        footer = self.footer
        return FileFacts(
            FileName(footer.base),
            footer.end,
            self.size_bytes,
            footer.first_timestamp_us,
            footer.last_timestamp_us,
            footer.refs,
            footer.sealed,
            footer.base,
        )

    def __call__(self) -> memoryview:
        """The bytes of the file: columns, then Parquet. Runs on a thread of the store."""
        if self._data is None:
            self._data = self._made()
        return memoryview(self._data)

    def _made(self) -> pa.Buffer | bytes:
        data: pa.Buffer | bytes
        schema = self._ref.schema
        if not schema.is_grouped and (few := _few(self._ref, self._base, self._batch)) is not None:
            self.rows = LaterTable(len(few.values), few, _table_of_few, row_bytes=SINGLE_ROW_BYTES)
            self.footer = self._footer(len(few.values), refs=0)
            data, self.link = encode_few(schema, self.footer, few.stamps_us, few.keys, few.values)
        elif not schema.is_grouped and (cut := _cut(self._ref, self._batch)) is not None:
            count = sum([each.count for each in cut.requests])
            self.rows = LaterTable(
                count, cut.without_texts(), _table_of_cut, row_bytes=_PICKED_ROW_BYTES, pick=_picked_of_cut
            )
            self.footer = self._footer(count, refs=0)
            data, self.link = cut.encode(self.footer)
        else:
            table = join(self._ref, self._batch, self._base)
            self.rows, self.footer = table, self._footer(table.num_rows, count_refs(table))
            data = encode(schema.in_file(table), self.footer)
            self.link = stated_footer_digest(memoryview(data))
        return data

    def _footer(self, count: int, refs: int) -> Footer:
        batch = self._batch
        requests = tuple(
            StoredRequest(each.request, Position(self._ref.segment, each.base, each.count))
            for each in batch
            if each.request is not None
        )
        return Footer(
            segment=self._ref.segment,
            base=self._base,
            count=count,
            writer=self.writer,
            first_timestamp_us=batch[0].timestamp_us if batch else 0,
            last_timestamp_us=batch[-1].last_timestamp_us if batch else 0,
            refs=refs,
            sealed=self._windows is not None,
            requests=requests,
            windows=self._windows_with(requests),
            previous=self._previous,
        )

    def _windows_with(self, requests: Sequence[StoredRequest]) -> bytes:
        """The producer windows for the seal, including the requests in the seal itself.

        Empty if this file is not a seal.
        """
        if self._windows is None or (self._windows.empty and not requests):
            return b""
        windows = self._windows.copy()
        for request, position in requests:
            windows.note(request, position, self._last_us)
        windows.expire(self._log_us)
        return windows.to_bytes()


def rows_of_payloads(ref: SegmentRef, payloads: "Iterable[Payload | Singles]") -> pa.Table:
    """Columns of `MessageSchema.rows` from whole batches and single messages, in order, without copying the batches."""
    schema = ref.schema.rows
    chunks: list[pa.RecordBatch] = []
    singles: list[Single] = []
    for payload in payloads:
        if isinstance(payload, Singles):
            singles += payload.messages
            continue
        if isinstance(payload, Single):
            singles.append(payload)
            continue
        if singles:
            chunks.append(columns_of(singles, schema))
            singles = []
        chunks.append(payload.batch() if isinstance(payload, CutRows) else payload)
    if singles:
        chunks.append(columns_of(singles, schema))
    return pa.Table.from_batches(chunks, schema=schema)


def join(ref: SegmentRef, batch: Sequence[Accepted], base: int) -> pa.Table:
    """Columns of `MessageSchema.log` from the payloads, in order."""
    rows = rows_of_payloads(ref, (each.payload for each in batch))
    return in_places(ref, rows.columns, _stamps(batch), base)


def in_places(ref: SegmentRef, columns: Sequence[pa.Array], stamps: npt.NDArray[np.int64], base: int) -> pa.Table:
    """The columns of `MessageSchema.rows` with offsets that begin at `base`, and with the time of each message."""
    offsets = np.arange(base, base + len(stamps), dtype=np.int64)
    first = [_column(offsets, OFFSET_FIELD.type), _column(stamps, TIMESTAMP)]
    return pa.Table.from_arrays([*first, *columns], schema=ref.schema.log)


def _stamps(batch: Sequence[Accepted]) -> npt.NDArray[np.int64]:
    """When each message was accepted."""
    gathered = [each.payload.stamps_us if isinstance(each.payload, Singles) else None for each in batch]
    if not any(gathered):
        return np.repeat(
            np.array([each.timestamp_us for each in batch], dtype=np.int64), [each.count for each in batch]
        )
    parts = [
        np.full(each.count, each.timestamp_us, np.int64) if stamps is None else np.array(stamps, np.int64)
        for each, stamps in zip(batch, gathered, strict=True)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _column(numbers: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """A 64-bit column over the numbers, without a copy."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def columns_of(singles: Sequence[Single], schema: pa.Schema) -> pa.RecordBatch:
    """Single messages as columns of `MessageSchema.rows`. Those of a topic group came with their topic, in columns."""
    columns = _columns_of(
        [single.key for single in singles],
        [single.value for single in singles],
        [single.event_time_us for single in singles],
        [single.headers for single in singles],
        schema,
    )
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _columns_of(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    times_us: Sequence[int | None],
    headers: Sequence[object],
    schema: pa.Schema,
) -> list[pa.Array]:
    return [
        _column_of(keys, schema.field("key").type),
        _values_of(values, schema.field("value").type),
        _column_of(times_us, schema.field("event_time").type),
        _column_of(headers, schema.field("headers").type),
        null_column(len(values), schema.field("_ref").type),
    ]


def _values_of(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    value = values[0]
    if len(values) > 1 or value is None or len(value) < _LARGE_BYTES or isinstance(kind, pa.ExtensionType):
        return pa.array(values, kind)
    ends = np.array([0, len(value)], dtype=np.int32)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(value)])


def _column_of(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    # Most single messages lack most of these fields, and a file may have one message.
    return null_column(len(values), kind) if not any(value is not None for value in values) else pa.array(values, kind)
