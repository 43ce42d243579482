"""Checks of JSON texts. They compute how much memory a text takes before it is parsed."""

from collections.abc import Generator

import orjson

from filer.errors import InvalidInput

LARGE_BYTES = 256 * 1024
"""A text up to this size is parsed without a look."""
MOST_PARSED_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 128 * 1024
# Rough sizes of the object that each of these begins, in a list or in a dictionary of few entries.
_OBJECT_BYTES = ((b"[", 72), (b"{", 240), (b",", 40), (b'"', 32), (b":", 16))


def parsed_bytes(text: bytes) -> int:
    """About how much the objects of a JSON text take at most; 0 for one that is not large.

    A text of empty lists takes forty times its size.
    """
    counting = parsed_bytes_in_steps(text)
    while True:
        try:
            next(counting)
        except StopIteration as end:
            return int(end.value)


def parsed_bytes_in_steps(text: bytes) -> Generator[None, None, int]:
    """As `parsed_bytes`. It yields after each piece of the text: otherwise a large text would hold up other tasks."""
    if len(text) <= LARGE_BYTES:
        return 0
    total_bytes = len(text)
    for start in range(0, len(text), _PIECE_BYTES):
        piece = text[start : start + _PIECE_BYTES]
        total_bytes += sum(piece.count(sign) * size_bytes for sign, size_bytes in _OBJECT_BYTES)
        yield
    return total_bytes


def parsed_size_checked(text: bytes, where: str) -> Generator[None, None, None]:
    """Raise `InvalidInput` if parsing a JSON text takes too much memory. Yields as `parsed_bytes_in_steps` does."""
    if (yield from parsed_bytes_in_steps(text)) > MOST_PARSED_BYTES:
        raise InvalidInput(
            f"{where}: JSON of so many lists, objects and strings takes more than {MOST_PARSED_BYTES} bytes of memory "
            "while it is read: send fewer messages in a request, or Arrow"
        )


def check_parsed_size(text: bytes, where: str) -> None:
    """As `parsed_size_checked`, at once."""
    for _ in parsed_size_checked(text, where):
        pass


def check_json_text(value: bytes, where: str) -> None:
    """Raise `InvalidInput` if the value is not JSON text, or would take too much memory to find out."""
    if len(value) > LARGE_BYTES:
        check_parsed_size(value, where)
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise not_json(where, error) from error


def not_json(where: str, error: orjson.JSONDecodeError) -> InvalidInput:
    """The error for a value that is not JSON."""
    return InvalidInput(f"{where}: the topic's values must be JSON, but this one is not JSON: {error}")
