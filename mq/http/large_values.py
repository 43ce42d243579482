"""Large values as JSON, without more copies of them than the text itself, and a little at a time.

A string of Python takes up to four times the bytes of its UTF-8, and orjson reserves eight times them to write it.
While one thread copies many mebibytes at once, no other runs.
"""

import base64
import codecs
import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import orjson

LARGE_BYTES = 256 * 1024
_STEP_BYTES = 64 * 1024
_BASE64_STEP_BYTES = 3 * 16 * 1024
_PART_BYTES = 1024 * 1024
# JSON has no such byte: it is written as \u0000. So none is part of what a client has sent.
_PLACE = re.compile(rb"\x00([0-9]+)\x00")


class LargeTexts(Protocol):
    """Takes the large texts of messages that are rendered."""

    def put(self, message: dict[str, Any], name: str, data: memoryview) -> None:
        """As a string if it is UTF-8, else as base64 under `<name>_base64`."""
        ...


class InPlace:
    """Large texts that become part of their message at once."""

    def put(self, message: dict[str, Any], name: str, data: memoryview) -> None:
        """As `LargeTexts.put`."""
        name, parts = _text(name, data)
        message[name] = orjson.Fragment(b"".join(parts))


class Aside:
    """Large texts that are kept in parts, of which no copy is made. `fill` puts them where they belong."""

    def __init__(self) -> None:
        self._texts: list[list[bytes]] = []

    def put(self, message: dict[str, Any], name: str, data: memoryview) -> None:
        """As `LargeTexts.put`, with the number of the text in its place."""
        name, parts = _text(name, data)
        message[name] = orjson.Fragment(b"\x00%d\x00" % len(self._texts))
        self._texts.append(parts)

    @property
    def has_any(self) -> bool:
        """Whether there was a large text."""
        return bool(self._texts)

    def fill(self, written: bytes) -> list[bytes]:
        """The parts of what was written of these messages, each text in its place."""
        if not self._texts:
            return [written]
        parts: list[bytes] = []
        for number, piece in enumerate(_PLACE.split(written)):
            # Between the pieces are the numbers of the texts.
            parts += self._texts[int(piece)] if number % 2 else [piece]
        return parts


def _text(name: str, data: memoryview) -> tuple[str, list[bytes]]:
    """The JSON string, in parts, and the name of its field."""
    try:
        return name, _joined(_escaped(data))
    except UnicodeDecodeError:
        return f"{name}_base64", _joined(_base64(data))


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


def _joined(steps: Iterable[bytes]) -> list[bytes]:
    """The steps in parts of about `_PART_BYTES`: each part of an answer is sent by itself."""
    parts: list[bytes] = []
    held: list[bytes] = []
    size_bytes = 0
    for step in steps:
        held.append(step)
        size_bytes += len(step)
        if size_bytes >= _PART_BYTES:
            parts.append(b"".join(held))
            held, size_bytes = [], 0
    parts.append(b"".join(held))
    return parts
