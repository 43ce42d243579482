"""The time when consumers of queue groups may get a message: fields of a message, stored as headers."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from filer.errors import InvalidInput
from filer.format.headers import DELIVER_AT, EXPIRES_AT, time_header, wrong_times
from mq.base import exact_json
from mq.bodies.times import parse_time

DELIVERY_FIELDS = ("delay_seconds", "deliver_at", "expires_at")
MOST_DELAY_SECONDS = 10 * 366 * 86_400
_Header = tuple[str, bytes]


def delivery_headers(message: Mapping[str, Any], headers: list[_Header], now_us: int, where: str) -> list[_Header]:
    """Return the headers for a message's fields of delivery; `headers` are its own. Raises `InvalidInput`."""
    if message.keys().isdisjoint(DELIVERY_FIELDS):
        return []
    deliver_at = _deliver_at(message, now_us, where)
    expires_at = _time(message.get("expires_at"), f"{where}: expires_at")
    if (reason := wrong_times(deliver_at, expires_at, now_us)) is not None:
        raise InvalidInput(f"{where}: {reason}")
    given = {name: at for name, at in ((DELIVER_AT, deliver_at), (EXPIRES_AT, expires_at)) if at is not None}
    for name, _ in headers:
        if name.lower() in given:
            raise InvalidInput(f"{where}: the header {name!r} says what a field of the message says too: give one")
    return [time_header(name, time_us) for name, time_us in given.items()]


def delivery_parameters(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a query as fields of a message; the delay is a number. Raises `InvalidInput`."""
    fields: dict[str, Any] = dict(parameters)
    if (delay := fields.get("delay_seconds")) is not None:
        try:
            fields["delay_seconds"] = float(delay)
        except ValueError as error:
            raise InvalidInput(f"delay_seconds must be a number, not {delay!r:.80}") from error
    return fields


def _deliver_at(message: Mapping[str, Any], now_us: int, where: str) -> int | None:
    delay_seconds = exact_json.plain(message.get("delay_seconds"))
    if delay_seconds is None:
        return _time(message.get("deliver_at"), f"{where}: deliver_at")
    if message.get("deliver_at") is not None:
        raise InvalidInput(f"{where}: give delay_seconds or deliver_at, not both")
    is_number = isinstance(delay_seconds, int | float) and not isinstance(delay_seconds, bool)
    if not (is_number and isfinite(delay_seconds) and 0 <= delay_seconds <= MOST_DELAY_SECONDS):
        raise InvalidInput(
            f"{where}: delay_seconds must be a number from 0 to {MOST_DELAY_SECONDS}, not {delay_seconds!r:.80}"
        )
    return now_us + round(delay_seconds * 1_000_000) if delay_seconds else None


def _time(text: Any, where: str) -> int | None:
    return None if text is None else parse_time(text, where)
