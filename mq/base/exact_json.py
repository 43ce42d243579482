"""Parsing JSON without changing numbers that are written again.

orjson turns a number that fits neither a 64-bit integer nor a double of 15 digits into a double. Written again, it
would have other digits.
"""

import json
import re
from typing import Any

import orjson

# Such numbers are long, very large or very small. A match inside a string costs time only.
_INEXACT = re.compile(rb"[:,\[\s]-?(?:[0-9.]{16}|[0-9.]+[eE][+-]?[0-9]{3})")
_INT64_DIGITS = 18


def loads(data: bytes) -> Any:
    """As `orjson.loads`, but numbers that it would change become `orjson.Fragment`s, which are written unchanged.

    This holds for numbers within an array or an object, not for a number alone. Raises `orjson.JSONDecodeError`.
    """
    document = orjson.loads(data)
    if _INEXACT.search(data) is None:
        return document
    try:
        return json.loads(data.decode(), parse_int=_whole, parse_float=orjson.Fragment)
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from error


def _whole(text: str) -> int | orjson.Fragment:
    return int(text) if len(text) <= _INT64_DIGITS else orjson.Fragment(text)
