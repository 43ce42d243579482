"""Messages as they are read: objects, made from the columns of a page a few at a time."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Any

import orjson
import pyarrow as pa

from braidmq.errors import InvalidArgument
from braidmq.markers import PageMarkers
from braidmq.short_reprs import short_repr
from filer.format.schema import TIMESTAMP
from filer.times import EPOCH

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


@dataclass(frozen=True, slots=True)
class Reference:
    """A payload that is stored as an object of its own. `Client.open` reads it and checks it against these values."""

    uri: str
    size_bytes: int
    etag: str | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Message:
    """One message: what its producer sent, and the segment, offset and time that the broker gave it.

    `value` is None for a null value, and for a value by reference, which is in `ref`. If a topic group was read,
    `topic` is the topic of the group to which the message belongs.
    """

    topic: str
    segment: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    event_time: datetime | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    ref: Reference | None = None
    _markers: PageMarkers | None = field(default=None, repr=False, compare=False)
    _row: int = field(default=0, repr=False, compare=False)

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def id(self) -> str:
        """`<segment>-<offset>`: unique within the topic. Broker URLs use it."""
        return f"{self.segment}-{self.offset}"

    @property
    def key_text(self) -> str | None:
        """The key as text. Raises `UnicodeDecodeError` if it is not UTF-8."""
        return None if self.key is None else self.key.decode()

    @property
    def value_text(self) -> str | None:
        """The value as text. Raises `UnicodeDecodeError` if it is not UTF-8, and as `json` for one by reference."""
        self._check_inline()
        return None if self.value is None else self.value.decode()

    def json(self) -> Any:
        """Return the value parsed as JSON; None for a null value. Raises `orjson.JSONDecodeError` if it is not JSON.

        Integers of any size are `int`. Raises `InvalidArgument` for a value by reference: `Client.open` reads it.
        """
        self._check_inline()
        if self.value is None:
            return None
        document = orjson.loads(self.value)
        # orjson turns integers beyond 64 bits into floats.
        return document if _LONG_NUMBER.search(self.value) is None else json.loads(self.value)

    def _check_inline(self) -> None:
        """Raise for a value by reference: a null in its place would be taken for the value."""
        if self.ref is not None and self.value is None:
            raise InvalidArgument(
                f"the value of message {self.id} ({self.ref.size_bytes} bytes) is stored beside the log: "
                "client.open(message) reads it"
            )

    @property
    def marker(self) -> str | None:
        """Where to go on after this message; None if it was not read in order."""
        return None if self._markers is None else self._markers.after(self._row)


class _Draft:
    """A message that is being made.

    A frozen dataclass sets each of its fields by a call. This one has the same slots, is filled without any, and
    becomes a `Message` by a change of its class: a tenth of the time.
    """

    __slots__ = Message.__slots__


class MessagePage:
    """The messages of one answer, between the markers `start` and `end`; a slice at a time becomes objects."""

    def __init__(self, topic: str, table: pa.Table, *, start: str | None, end: str) -> None:
        self.table = table
        self.start, self.end = start, end
        self._topic = topic
        self._markers: PageMarkers | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def messages(self, start: int, count: int) -> list[Message]:
        """Return the messages of at most `count` rows from row `start` on."""
        return messages_of(self._topic, self.table.slice(start, count), self._page_markers(), start)

    def _page_markers(self) -> PageMarkers:
        if self._markers is None:
            segments: list[Any] = self.table["segment"].to_pylist()
            offsets: list[Any] = self.table["_offset"].to_pylist()
            self._markers = PageMarkers(self._topic, self.start, segments, offsets, self.end)
        return self._markers


def messages_of(topic: str, table: pa.Table, markers: PageMarkers | None = None, first_row: int = 0) -> list[Message]:
    """Return each row of a table as a message; with `markers`, those of a page from `first_row` on."""
    count = table.num_rows
    columns = [_python_column(table, name) for name in _COLUMNS]
    # In a topic group, each row names the topic that it belongs to.
    topics = table[_TOPIC].to_pylist() if _TOPIC in table.schema.names else [topic] * count
    made: list[Any] = list(map(_Draft.__new__, repeat(_Draft, count)))
    row = first_row
    for draft, of_topic, segment, offset, timestamp, key, value, event_time, headers, ref in zip(
        made, topics, *columns, strict=True
    ):
        draft.topic, draft.segment, draft.offset, draft.timestamp = of_topic, segment, offset, timestamp
        draft.key, draft.value, draft.event_time = key, value, event_time
        draft.headers, draft.ref = headers, ref
        draft._markers, draft._row = markers, row
        draft.__class__ = Message
        row += 1
    return made


_TOPIC = "_topic"
_COLUMNS = ("segment", "_offset", "_timestamp", "key", "value", "event_time", "headers", "_ref")


def _python_column(table: pa.Table, name: str) -> list[Any]:
    """One column as the Python objects that `Message` holds."""
    column = table[name]
    if name == "headers":
        return _headers(column)
    if column.null_count == len(column):
        return [None] * len(column)
    if name in ("_timestamp", "event_time"):
        return _times(column)
    if name in ("key", "value"):
        return list(column.cast(pa.binary()).to_pylist())
    if name == "_ref":
        return [_reference(each) for each in column.to_pylist()]
    return list(column.to_pylist())


def _times(column: "pa.ChunkedArray[Any]") -> list[datetime | None]:
    # Through integers and differences: Arrow's own conversion looks up the time zone for each value.
    chunks = column.chunks if column.type == TIMESTAMP else column.cast(TIMESTAMP).chunks
    microseconds = list(chain.from_iterable(chunk.view(pa.int64()).to_pylist() for chunk in chunks))
    # Messages published together have one time.
    times = {each: None if each is None else EPOCH + timedelta(0, 0, each) for each in set(microseconds)}
    return [times[each] for each in microseconds]


def _headers(column: "pa.ChunkedArray[Any]") -> list[dict[str, bytes]]:
    if column.null_count == len(column):
        return [{} for _ in range(len(column))]
    return [{} if each is None else dict(each) for each in column.to_pylist()]


def _reference(struct: dict[str, Any] | None) -> Reference | None:
    if struct is None:
        return None
    return Reference(struct["uri"], struct["size"], struct["etag"], struct["sha256"])
