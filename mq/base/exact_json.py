"""Parsing JSON without changing numbers that are written again.

orjson turns each number with a point or an exponent, and each integer of more than 64 bits, into a double. Written
again, many have other digits: `112.50` becomes `112.5`, which is another decimal.
"""

import json
from typing import Any

import orjson


def loads(data: bytes) -> Any:
    """As `orjson.loads`, but numbers with a point or an exponent become `orjson.Fragment`s: they stay as written.

    Integers stay integers, of whatever size. Raises `orjson.JSONDecodeError`.
    """
    orjson.loads(data)  # it is the stricter of the two, about NaN and surrogates
    try:
        return json.loads(data.decode(), parse_float=orjson.Fragment)
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from error


def dumps(value: Any) -> bytes:
    """What `loads` returned, or a part of it, as JSON again. Raises `TypeError` for what is nested too deeply."""
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
