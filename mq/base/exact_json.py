"""Parses JSON without changes to the numbers that are written again.

orjson turns each number with a point or an exponent, and each integer of more than 64 bits, into a double. Written
again, many have other digits: `112.50` becomes `112.5`, which is another decimal. If an object has a name twice, every
parser keeps one of them only.
"""

import json
import re
from typing import Any

import orjson

_NEGATIVE_ZERO = re.compile(rb"-0(?![.eE0-9])")


def loads(data: bytes) -> Any:
    """As `orjson.loads`, but numbers with a point or an exponent become `orjson.Fragment`s: they keep their text.

    Integers stay integers, of whatever size, except that `-0` becomes a `Fragment` too. Raises
    `orjson.JSONDecodeError`, also for an object that has a name twice.
    """
    orjson.loads(data)  # it is the stricter of the two, about NaN and surrogates
    # Only texts that may hold a negative zero pay for looking at each integer.
    decoder = _careful_decoder if _NEGATIVE_ZERO.search(data) else _decoder
    try:
        return decoder.decode(data.decode())
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from error


def has_each_name_once(data: bytes, strings: int) -> bool:
    """Whether no object of a JSON text has a name twice, which orjson does not report.

    `strings` is how many strings orjson has found in it, names and values. False if it is not known: a text with a
    backslash may have quotes that begin no string.
    """
    return b"\\" not in data and data.count(b'"') == 2 * strings


def is_whole(data: bytes, parsed: Any) -> bool:
    """Whether `parsed`, which orjson has parsed from `data`, has all of its names: no object had one twice.

    A text without a backslash has as many quotes as orjson writes for it, and fewer are written if a name went. False
    if it is not known; then `loads` decides.
    """
    if b"\\" in data:
        return False
    try:
        return data.count(b'"') == orjson.dumps(parsed).count(b'"')
    except TypeError:  # nested too deeply to be written
        return False


def _integer(text: str) -> Any:
    return orjson.Fragment(text) if text == "-0" else int(text)


def _each_name_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                raise orjson.JSONDecodeError(f"an object has the name {name!r:.80} twice", "", 0)
            seen.add(name)
    return found


_decoder = json.JSONDecoder(parse_float=orjson.Fragment, object_pairs_hook=_each_name_once)
_careful_decoder = json.JSONDecoder(parse_float=orjson.Fragment, parse_int=_integer, object_pairs_hook=_each_name_once)


def plain(value: Any) -> Any:
    """Return the result of `loads` with Python's numbers, for callers that do not need them as written."""
    return orjson.loads(orjson.dumps(value)) if isinstance(value, orjson.Fragment) else value


def loads_at(text: str, start: int) -> tuple[Any, int]:
    """As `loads`, for the JSON value that begins there; returns also where it ends."""
    try:
        value, end = _decoder.raw_decode(text, start)
        part = text[start:end].encode()
        orjson.loads(part)  # as in `loads`
        if _NEGATIVE_ZERO.search(part):
            value, _ = _careful_decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise orjson.JSONDecodeError(error.msg, error.doc, error.pos) from error
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from error
    except UnicodeEncodeError as error:
        raise orjson.JSONDecodeError("a lone surrogate is not valid Unicode", "", 0) from error
    except orjson.JSONDecodeError:
        raise
    except ValueError as error:
        # Python does not convert digits without limit: the time grows with the square of their number.
        raise orjson.JSONDecodeError("an integer has too many digits", "", 0) from error
    return value, end


def dumps(value: Any) -> bytes:
    """Return the result of `loads`, or a part of it, as JSON again. Raises `TypeError` if it is nested too deeply."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # It has an integer of more than 64 bits, or it is nested too deeply.
        try:
            return orjson.dumps(_with_large_integers(value))
        except RecursionError as error:
            raise TypeError("nested too deeply") from error


def _with_large_integers(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 2**63 else orjson.Fragment(str(value))
    if isinstance(value, list):
        return [_with_large_integers(each) for each in value]
    if isinstance(value, dict):
        return {name: _with_large_integers(each) for name, each in value.items()}
    return value
