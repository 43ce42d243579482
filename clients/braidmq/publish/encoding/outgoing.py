"""Outgoing messages: the user's input, and the row that it becomes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO, TypeAlias

from braidmq.errors import InvalidArgument
from braidmq.json_rows.plain_values import value_json
from braidmq.publish.encoding.delivery_times import DeliveryTimes, check_given_once
from braidmq.short_reprs import short_repr
from braidmq.times import microseconds

Key: TypeAlias = bytes | str | int | None
Headers: TypeAlias = Mapping[str, bytes | str]
Json: TypeAlias = dict[str, Any] | list[Any] | int | float | bool | Decimal | date | time | timedelta

_AS_JSON = (dict, list, int, float, bool, Decimal, date, time, timedelta)
CONTENT_TYPE = "content-type"
JSON_TYPE = b"application/json"
# The bytes of a row in Arrow buffers beyond its data: offsets, validity, timestamp.
ROW_OVERHEAD_BYTES = 32
_BATCH_MESSAGES = 10_000
_BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Upload:
    """A payload that is on the store. Publish it as a value, and the message refers to it."""

    id: str
    size_bytes: int
    sha256: str


Value: TypeAlias = bytes | bytearray | memoryview | str | Json | BinaryIO | Upload | None


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message to publish.

    `value`: bytes are sent unchanged, text as UTF-8, and None is a null value. Numbers, booleans, times, lists and
    dictionaries are sent as JSON with the header `content-type: application/json`. A binary file or an `Upload` is sent
    by reference. In a topic of JSON a text is a JSON string, and bytes are JSON text. `key`: a whole number is sent as
    text. Consumers of queue groups get the message from `deliver_at` on, or after a `delay` from when it is sent, and
    no longer from `expires_at` on.
    """

    value: Value
    key: Key = None
    headers: Headers = field(default_factory=dict)
    event_time: datetime | None = None
    deliver_at: datetime | None = None
    delay: timedelta | None = None
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, slots=True)
class Row:
    """A message as it is sent; `event_time_us` is in microseconds since the epoch.

    `is_text`: the value was given as text, which is a JSON string to a topic of JSON.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    event_time_us: int | None
    upload: Upload | None
    is_text: bool = False

    @property
    def size_bytes(self) -> int:
        """Its approximate size in a request."""
        return len(self.key or b"") + len(self.value or b"") + row_headers_bytes(self.headers) + ROW_OVERHEAD_BYTES


def row_headers_bytes(headers: Iterable[tuple[str, bytes]]) -> int:
    """The approximate size of a message's headers in a request."""
    return sum(len(name) + len(value) + ROW_OVERHEAD_BYTES for name, value in headers)


def row_of(message: OutgoingMessage, *, upload: Upload | None, now_us: int) -> Row:
    """Return the row of a message that is sent now. Its value is `upload` if that is given."""
    value, is_json = (None, False) if upload is not None else value_bytes(message.value)
    given: object = message.headers
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"headers are a dictionary of text to bytes or text, and not {_article(given)}")
    headers = tuple((name, _header_bytes(name, each)) for name, each in given.items())
    if is_json and not any(name.lower() == CONTENT_TYPE for name, _ in headers):
        headers += ((CONTENT_TYPE, JSON_TYPE),)
    if times := DeliveryTimes(message.deliver_at, message.delay, message.expires_at):
        told = times.headers(now_us)
        check_given_once(message.headers, told)
        headers += told
    moment = message.event_time
    event_time_us = None if moment is None else microseconds(moment)
    is_text = upload is None and isinstance(message.value, str)
    return Row(key_bytes(message.key), value, headers, event_time_us, upload, is_text)


def value_bytes(value: Any) -> tuple[bytes | None, bool]:
    """Return the bytes of an inline value, and whether they were converted to JSON here."""
    if value is None or isinstance(value, bytes):
        return value, False
    if isinstance(value, str):
        return _encoded(value), False
    if isinstance(value, bytearray | memoryview):
        return bytes(value), False
    if not isinstance(value, _AS_JSON):
        raise InvalidArgument(
            f"a value cannot be {_article(value)}: give bytes, text, None, a number, a time, a list, a dictionary, "
            f"a binary file or an Upload"
        )
    return value_json(value), True


def check_several(messages: object) -> None:
    """Raise `InvalidArgument` if this is no list, and for a single value: its letters would be messages."""
    if isinstance(messages, bytes | bytearray | memoryview | str | Mapping) or not isinstance(messages, Iterable):
        raise InvalidArgument(f"publish_many takes a list of values or messages, and not {_article(messages)}")


def in_batches(messages: Iterable[OutgoingMessage | Value]) -> Iterator[list[OutgoingMessage | Value]]:
    """The messages in order, in batches small enough to hold in memory. Raises what `check_several` does."""
    check_several(messages)
    batch: list[OutgoingMessage | Value] = []
    size_bytes = 0
    for message in messages:
        value = message.value if isinstance(message, OutgoingMessage) else message
        batch.append(message)
        size_bytes += len(value) if isinstance(value, bytes | bytearray | memoryview | str) else 0
        if len(batch) >= _BATCH_MESSAGES or size_bytes >= _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def is_inline(value: Value, limit_bytes: int) -> bool:
    """Whether a value is certainly sent within the message: bytes or text of at most `limit_bytes`, or null."""
    if isinstance(value, str):
        return len(value) * 4 <= limit_bytes
    return value is None or (isinstance(value, bytes) and len(value) <= limit_bytes)


def key_bytes(key: Any) -> bytes | None:
    """Return the bytes of a key. Raises `InvalidArgument`."""
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return _encoded(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key).encode()  # as a column of whole numbers
    raise InvalidArgument(f"a key cannot be {_article(key)}: give bytes, text, a whole number or None")


def _header_bytes(name: Any, value: Any) -> bytes:
    if isinstance(name, str) and isinstance(value, bytes):
        return value
    if isinstance(name, str) and isinstance(value, str):
        return _encoded(value)
    raise InvalidArgument(f"header {name!r} is {_article(value)}: names are text, values are bytes or text")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as failure:
        raise InvalidArgument(f"text is sent as UTF-8, and this is none: {failure}; give bytes") from failure


def _article(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
