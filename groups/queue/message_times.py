"""When messages may be handed out, by their headers."""

from typing import NamedTuple

import pyarrow as pa

from filer.format.headers import DELIVER_AT, EXPIRES_AT, TIMES, time_of

_TICK_MS = 100


class Timed(NamedTuple):
    """A message that needs more than a claim: it is due at `due_ms`, or has expired (`due_ms` is None)."""

    row: int
    due_ms: int | None


class Times(NamedTuple):
    """When a message is due, and when it expires, in ms of the epoch; None if its headers do not say."""

    due_ms: int | None
    expires_ms: int | None

    def is_delayed(self, now_ms: int) -> bool:
        """Whether it is not due yet."""
        return self.due_ms is not None and self.due_ms > now_ms

    def is_expired(self, now_ms: int) -> bool:
        """Whether no consumer gets it any more."""
        return self.expires_ms is not None and self.expires_ms <= now_ms


def times_of(headers: pa.ChunkedArray) -> dict[int, Times]:
    """The times in the column `headers`, by row; leaves out rows without any.

    Names are the same in upper and lower case. Times that are not RFC 3339, which earlier versions stored, do not
    count.
    """
    if headers.null_count == len(headers):
        return {}
    names = {name for chunk in headers.chunks for name in chunk.keys.dictionary_encode().dictionary.to_pylist()}
    if not any(name.lower() in TIMES for name in names):
        return {}
    found: dict[int, Times] = {}
    for row, pairs in enumerate(headers.to_pylist()):
        given = {name.lower(): value for name, value in pairs or ()}
        times = Times(_ms(given.get(DELIVER_AT)), _ms(given.get(EXPIRES_AT)))
        if times != (None, None):
            found[row] = times
    return found


def timed_rows(headers: pa.ChunkedArray, now_ms: int) -> list[Timed]:
    """The messages that are delayed or have expired, by the column `headers`. Expired ones are not delayed.

    Delays are rounded up to a tenth of a second, so that there are fewer different ones.
    """
    found: list[Timed] = []
    for row, times in times_of(headers).items():
        if times.is_expired(now_ms):
            found.append(Timed(row, None))
        elif times.due_ms is not None and times.due_ms > now_ms:
            found.append(Timed(row, -(-times.due_ms // _TICK_MS) * _TICK_MS))
    return found


def _ms(text: bytes | None) -> int | None:
    time_us = None if text is None else time_of(text)
    return None if time_us is None else time_us // 1000
