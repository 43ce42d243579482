"""Times as clients write them."""

from typing import Any

from filer.errors import InvalidInput
from filer.times import parse_rfc3339


def parse_time(text: Any, where: str, *, instead: str = "") -> int:
    """Return an RFC 3339 time in microseconds since the epoch; raises `InvalidInput`, which also names `instead`."""
    wanted = f"{where} must be {instead}an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z, not {text!r:.80}"
    if not isinstance(text, str):
        raise InvalidInput(wanted)
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise InvalidInput(wanted) from error
