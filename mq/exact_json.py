"""Parsing JSON of which parts are written again: no number changes on the way.

orjson makes a double of a number that no 64-bit integer and no double of 15 digits holds; written again it has other
digits.
"""

import json
import re
from typing import Any

import orjson

# Such numbers are long, or very large or small. What it finds within a text costs time and nothing else.
_INEXACT = re.compile(rb"[:,\[\s]-?(?:[0-9.]{16}|[0-9.]+[eE][+-]?[0-9]{3})")
_INT64_DIGITS = 18


def loads(data: bytes) -> Any:
    """As `orjson.loads`, but numbers that it would change are `orjson.Fragment`s, to be written as they were.

    `data` is an array or an object, or lone numbers are taken as they come. Raises `orjson.JSONDecodeError`.
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
