"""Messages on their way out: what users give, and the row that it becomes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, TypeAlias

import orjson

from braidmq.errors import InvalidArgument
from braidmq.times import microseconds

Key: TypeAlias = bytes | str | None
Headers: TypeAlias = Mapping[str, bytes | str]
Json: TypeAlias = dict[str, Any] | list[Any] | int | float | bool

CONTENT_TYPE = "content-type"
JSON_TYPE = b"application/json"
# What a row takes in Arrow buffers beyond its bytes: offsets, validity, timestamp.
_ROW_OVERHEAD_BYTES = 32
_PART_MESSAGES = 10_000
_PART_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Upload:
    """A payload that is already on the store: publish it as a value, and the message refers to it."""

    id: str
    size_bytes: int
    sha256: str


Value: TypeAlias = bytes | bytearray | memoryview | str | Json | BinaryIO | Upload | None


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message to publish.

    `value`: bytes are sent as they are, text as UTF-8, None is a null value; numbers, booleans, lists and
    dictionaries are sent as JSON with the header `content-type: application/json`; a binary file or an
    `Upload` is sent by reference.
    """

    value: Value
    key: Key = None
    headers: Headers = field(default_factory=dict)
    event_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A message as it goes on the wire; `event_time_us` in microseconds since the epoch."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    event_time_us: int | None
    upload: Upload | None

    @property
    def size_bytes(self) -> int:
        """What it takes in a request, roughly."""
        headers = sum(len(name) + len(value) + _ROW_OVERHEAD_BYTES for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + _ROW_OVERHEAD_BYTES


def row_of(message: OutgoingMessage, *, upload: Upload | None) -> Row:
    """The row of a message; its value is `upload` where that is given."""
    value, is_json = (None, False) if upload is not None else value_bytes(message.value)
    headers = tuple((name, _header_bytes(name, each)) for name, each in message.headers.items())
    if is_json and CONTENT_TYPE not in message.headers:
        headers += ((CONTENT_TYPE, JSON_TYPE),)
    moment = message.event_time
    return Row(key_bytes(message.key), value, headers, None if moment is None else microseconds(moment), upload)


def value_bytes(value: Any) -> tuple[bytes | None, bool]:
    """The bytes of an inline value, and whether they are JSON made here."""
    if value is None or isinstance(value, bytes):
        return value, False
    if isinstance(value, str):
        return value.encode(), False
    if isinstance(value, bytearray | memoryview):
        return bytes(value), False
    if not isinstance(value, dict | list | int | float | bool):
        raise InvalidArgument(
            f"a value cannot be {_article(value)}: give bytes, text, None, a number, a list, a dictionary, "
            f"a binary file or an Upload"
        )
    try:
        return orjson.dumps(value), True
    except orjson.JSONEncodeError as failure:
        raise InvalidArgument(f"the value cannot be written as JSON: {failure}") from failure


def in_parts(messages: Iterable[OutgoingMessage | Value]) -> Iterator[list[OutgoingMessage | Value]]:
    """The messages in order, some at a time: as many as may well be held in memory."""
    part: list[OutgoingMessage | Value] = []
    size_bytes = 0
    for message in messages:
        value = message.value if isinstance(message, OutgoingMessage) else message
        part.append(message)
        size_bytes += len(value) if isinstance(value, bytes | bytearray | memoryview | str) else 0
        if len(part) >= _PART_MESSAGES or size_bytes >= _PART_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


def is_inline(value: Value, limit_bytes: int) -> bool:
    """Whether a value is surely sent within the message: bytes or text of so many bytes at most, or null."""
    if isinstance(value, str):
        return len(value) * 4 <= limit_bytes
    return value is None or (isinstance(value, bytes) and len(value) <= limit_bytes)


def key_bytes(key: Any) -> bytes | None:
    """The bytes of a key."""
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise InvalidArgument(f"a key cannot be {_article(key)}: give bytes, text or None")


def _header_bytes(name: Any, value: Any) -> bytes:
    if isinstance(name, str) and isinstance(value, bytes):
        return value
    if isinstance(name, str) and isinstance(value, str):
        return value.encode()
    raise InvalidArgument(f"header {name!r} is {_article(value)}: names are text, values are bytes or text")


def _article(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
