"""The positions that `--from` and `--to` name: `earliest`, `latest`, a time, or how long ago."""

from datetime import datetime

import typer

from filer.quantities import parse_duration_seconds
from filer.times import EARLIEST_US, moment_of, parse_rfc3339

Start = str | datetime
_NAMES = ("earliest", "latest")
_TIMES = "an RFC 3339 time such as 2026-01-31T12:00:00Z, or how long ago, such as 30s, 5m, 2h or 1d"


def start_of(text: str, now_us: int, *, option: str = "--from") -> Start:
    """Parse a position: `earliest`, `latest` or a time as `moment` has it. Raises `typer.BadParameter`."""
    return text if text in _NAMES else moment(text, now_us, option=option, names=f"{', '.join(_NAMES)}, ")


def moment(text: str, now_us: int, *, option: str, names: str = "") -> datetime:
    """Parse a time: RFC 3339, or how long before `now_us`, with a unit. Raises `typer.BadParameter`."""
    try:
        return moment_of(_time_us(text, now_us))
    except ValueError as error:
        raise typer.BadParameter(f"it must be {names}{_TIMES}, not {text!r}", param_hint=option) from error


def _time_us(text: str, now_us: int) -> int:
    # A plain number could be meant as seconds ago, as seconds since 1970, or as a year.
    if text[-1:].isdecimal() or not text[:1].isdecimal() or "T" in text[:11]:
        return parse_rfc3339(text)
    try:
        ago_seconds = parse_duration_seconds(text)
    except ValueError:
        return parse_rfc3339(text)
    return max(EARLIEST_US, now_us - round(ago_seconds * 1_000_000))
