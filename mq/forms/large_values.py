"""Large values as JSON: in small steps, and with no more copies than the text itself.

A string of Python takes up to four times the bytes of its UTF-8, and orjson reserves eight times them to write it. A
copy of many mebibytes at once would stop all other work: so everything here goes in steps (`mq/limits/steps.py`).
"""

import base64
import codecs
import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import orjson

from mq.limits.steps import Steps

LARGE_BYTES = 256 * 1024
_STEP_BYTES = 64 * 1024
_BASE64_STEP_BYTES = 3 * 16 * 1024
_PART_BYTES = 1024 * 1024
# So many of these steps take some 0.2 ms.
_AT_ONCE = 3
# JSON has no such byte: it is written as \u0000. So no text of a client contains one.
_PLACE = re.compile(rb"\x00([0-9]+)\x00")


class LargeTexts(Protocol):
    """Takes the large texts of messages that are rendered."""

    def put(self, message: dict[str, Any], name: str, data: memoryview) -> Steps[None]:
        """Put the text as a string if it is UTF-8, else as base64 under `<name>_base64`."""
        ...


class InPlace:
    """Large texts that become part of their message at once."""

    def put(self, message: dict[str, Any], name: str, data: memoryview) -> Steps[None]:
        """As `LargeTexts.put`."""
        name, parts = yield from _text(name, data)
        message[name] = orjson.Fragment(b"".join(parts))


class Aside:
    """Large texts that are kept in parts, without a copy. `fill` puts them where they belong."""

    def __init__(self) -> None:
        self._texts: list[list[bytes]] = []

    def put(self, message: dict[str, Any], name: str, data: memoryview) -> Steps[None]:
        """As `LargeTexts.put`, with the number of the text in its place."""
        name, parts = yield from _text(name, data)
        message[name] = orjson.Fragment(b"\x00%d\x00" % len(self._texts))
        self._texts.append(parts)

    def fill(self, written: bytes) -> list[bytes]:
        """The parts of the written messages since the last call, each text in its place."""
        if not self._texts:
            return [written]
        texts, self._texts = self._texts, []
        parts: list[bytes] = []
        for number, piece in enumerate(_PLACE.split(written)):
            # Between the pieces are the numbers of the texts.
            parts += texts[int(piece)] if number % 2 else [piece]
        return parts


def _text(name: str, data: memoryview) -> Steps[tuple[str, list[bytes]]]:
    """The name of the field, and the JSON string in parts."""
    try:
        return name, (yield from _joined(_escaped(data)))
    except UnicodeDecodeError:
        return f"{name}_base64", (yield from _joined(_base64(data)))


def _escaped(data: memoryview) -> Iterator[bytes]:
    """The JSON string of UTF-8. Raises `UnicodeDecodeError`."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    yield b'"'
    for start in range(0, len(data), _STEP_BYTES):
        yield orjson.dumps(decoder.decode(data[start : start + _STEP_BYTES]))[1:-1]
    decoder.decode(b"", final=True)
    yield b'"'


def _base64(data: memoryview) -> Iterator[bytes]:
    yield b'"'
    for start in range(0, len(data), _BASE64_STEP_BYTES):
        yield base64.b64encode(data[start : start + _BASE64_STEP_BYTES])
    yield b'"'


def _joined(pieces: Iterable[bytes]) -> Steps[list[bytes]]:
    """The pieces in parts of about `_PART_BYTES`: each part of an answer is sent by itself."""
    parts: list[bytes] = []
    held: list[bytes] = []
    size_bytes = 0
    for number, piece in enumerate(pieces):
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
        held.append(piece)
        size_bytes += len(piece)
        if size_bytes >= _PART_BYTES:
            parts.append(b"".join(held))
            held, size_bytes = [], 0
    parts.append(b"".join(held))
    return parts
