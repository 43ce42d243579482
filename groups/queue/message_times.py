"""When messages may be handed out, by their headers."""

from typing import NamedTuple

import pyarrow as pa

from filer.format.headers import DELIVER_AT, EXPIRES_AT, TIMES, time_of

_TICK_MS = 100


class Timed(NamedTuple):
    """A message that is not simply to be handed out: it is due at `due_ms`, or has expired (`due_ms` is None)."""

    row: int
    due_ms: int | None


def timed_rows(headers: pa.ChunkedArray, now_ms: int) -> list[Timed]:
    """The messages that are delayed or have expired, by the column `headers`. Names are the same in
    upper and lower case. Times that are not RFC 3339, which earlier versions stored, are none.

    Delays are rounded up to a tenth of a second, so that there are only so many different ones.
    """
    if headers.null_count == len(headers):
        return []
    names = {name for chunk in headers.chunks for name in chunk.keys.dictionary_encode().dictionary.to_pylist()}
    if not any(name.lower() in TIMES for name in names):
        return []
    found: list[Timed] = []
    for row, pairs in enumerate(headers.to_pylist()):
        given = {name.lower(): value for name, value in pairs or ()}
        if (expires_ms := _ms(given.get(EXPIRES_AT))) is not None and expires_ms <= now_ms:
            found.append(Timed(row, None))
        elif (due_ms := _ms(given.get(DELIVER_AT))) is not None and due_ms > now_ms:
            found.append(Timed(row, -(-due_ms // _TICK_MS) * _TICK_MS))
    return found


def _ms(text: bytes | None) -> int | None:
    time_us = None if text is None else time_of(text)
    return None if time_us is None else time_us // 1000
