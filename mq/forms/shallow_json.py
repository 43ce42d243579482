"""Parses a JSON object with long lists a step at a time. Parsed at once, 4 MB of them stop all other work for 0.1 s.

The values of such an object are scalars, and lists of scalars and of plain objects. Bodies of requests about many
things have nothing else. This module only finds where entries end. `orjson` parses them.
"""

import re
from typing import Any

import orjson

from filer.errors import InvalidInput
from mq.base import exact_json
from mq.base.errors import Malformed
from mq.limits.steps import STEP_ROWS, Steps

WHOLE_BYTES = 64 * 1024
"""A body up to this is parsed at once, with any content."""
MOST_ENTRY_BYTES = 8 * 1024
_STEP_BYTES = 32 * 1024
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_PLAIN = rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+"
_BEGIN = re.compile(rb"[ \t\r\n]*+\{")
_UP_TO_LIST = re.compile(_PLAIN + rb"([\[}])", re.DOTALL)
_ENTRY = re.compile(
    rb"[ \t\r\n]*+(?:\{" + _PLAIN + rb"\}|[^\",\[\]{}]++|" + _STRING + rb")[ \t\r\n]*+([,\]])", re.DOTALL
)
_EMPTY = re.compile(rb"[ \t\r\n]*+\]")


def object_in_steps(body: bytes, example: str, most: int) -> Steps[dict[str, Any]]:
    """The object of a body, with at most so many entries in each list. `example` is a good body.

    Raises `Malformed`, and `InvalidInput` for JSON that is no such object.
    """
    if len(body) <= WHOLE_BYTES:
        return object_of(body, example)
    begin = _BEGIN.match(body)
    if begin is None:
        raise _no_shallow_object(example)
    place, outline, lists = begin.end(), bytearray(b"{"), []
    while True:
        found = _UP_TO_LIST.match(body, place, place + WHOLE_BYTES)
        if found is None or len(outline) + len(found[0]) > WHOLE_BYTES:
            raise _no_shallow_object(example)
        outline += found[0]
        place = found.end()
        if found[1] == b"}":
            break
        outline += b"]"
        entries, place = yield from _entries(body, place, example, most)
        lists.append(entries)
    if body[place:].strip(b" \t\r\n"):
        raise Malformed("the body is not valid JSON: there is something behind its object")
    document = object_of(bytes(outline), example)
    names = [name for name, value in document.items() if isinstance(value, list)]
    return {**document, **dict(zip(names, lists, strict=True))}


def _entries(body: bytes, place: int, example: str, most: int) -> Steps[tuple[list[Any], int]]:
    """The entries of a list that begins there, and where it ends."""
    if (empty := _EMPTY.match(body, place)) is not None:
        return [], empty.end()
    entries: list[Any] = []
    start, count = place, 0
    while True:
        found = _ENTRY.match(body, place, place + MOST_ENTRY_BYTES)
        if found is None:
            raise _no_shallow_object(example)
        place, count, is_last = found.end(), count + 1, found[1] == b"]"
        if is_last or count >= STEP_ROWS or place - start >= _STEP_BYTES:
            entries += _parsed(b"[%b]" % body[start : place - 1])
            if is_last or len(entries) > most:
                break
            start, count = place, 0
            yield
    if len(entries) > most:
        raise InvalidInput(f"a list of the body has at most {most} entries")
    return entries, place


def object_of(body: bytes, example: str) -> dict[str, Any]:
    """A JSON object, parsed at once. Raises `Malformed`, and `InvalidInput` for JSON that is no object."""
    document = _parsed(body)
    if not isinstance(document, dict):
        raise InvalidInput(f"the body should be an object such as {example}")
    return document


def _parsed(text: bytes) -> Any:
    try:
        parsed = orjson.loads(text)
        if not exact_json.is_whole(text, parsed):
            exact_json.loads(text)  # it refuses a name that an object has twice
        return parsed
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the body is not valid JSON: {error}") from error


def _no_shallow_object(example: str) -> InvalidInput:
    return InvalidInput(
        f"a body of more than {WHOLE_BYTES} bytes has to be an object with lists of plain values and objects, each of "
        f"at most {MOST_ENTRY_BYTES} bytes, such as {example}"
    )
