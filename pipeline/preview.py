"""What a job would do, for `--dry-run`: how many messages, their times, and the first as they would be stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from filer.times import microseconds, rfc3339
from pipeline.output import counted, print_json, print_lines, print_table, size

MOST_SHOWN = 3
_SHOWN_CHARACTERS = 100
_DAY_US = 86_400 * 10**6
# Data from before is rare, and numbers of a wrong unit or of another meaning often fall there.
_EARLIEST_LIKELY_US = 631_152_000 * 10**6


@dataclass(frozen=True, slots=True)
class Times:
    """The earliest and the latest time of some messages, in microseconds since the epoch; None if none has one."""

    first_us: int | None
    last_us: int | None

    def unlikely(self, now_us: int) -> str | None:
        """Return what is strange about them: before 1990, or after tomorrow. None if nothing is."""
        if self.first_us is None or self.last_us is None:
            return None
        if self.first_us < _EARLIEST_LIKELY_US:
            return f"the earliest event time is {rfc3339(self.first_us)}, before 1990"
        if self.last_us > now_us + _DAY_US:
            return f"the latest event time is {rfc3339(self.last_us)}, after tomorrow"
        return None

    def document(self) -> dict[str, str | None]:
        """Return them as JSON."""
        names = ("first", "last")
        times = (self.first_us, self.last_us)
        return {name: None if each is None else rfc3339(each) for name, each in zip(names, times, strict=True)}


@dataclass(frozen=True, slots=True)
class Preview:
    """Messages that would be written: `first` are some of them, each with `key`, `value` and `event_time`."""

    messages: int
    size_bytes: int
    times: Times
    first: Sequence[Mapping[str, Any]]

    def show(self, what: str, warning: str | None, *, as_json: bool) -> None:
        """Print it. `what` is what would be done with them."""
        if as_json:
            first = [{name: _text(value) for name, value in row.items()} for row in self.first]
            print_json(
                {"dry_run": True, "would": what, "messages": self.messages, "bytes": self.size_bytes}
                | {"event_time": self.times.document(), "warning": warning, "first": first}
            )
            return
        print_lines(f"would {what}: {counted(self.messages, 'message')} with {size(self.size_bytes)} of values")
        if self.times.first_us is not None and self.times.last_us is not None:
            print_lines(f"event times from {rfc3339(self.times.first_us)} to {rfc3339(self.times.last_us)}")
        if warning is not None:
            print_lines(f"unlikely: {warning}")
        if self.first:
            columns = list(self.first[0])
            print_table(columns, ([_short(row[name]) for name in columns] for row in self.first))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return rfc3339(microseconds(value)) if hasattr(value, "tzinfo") else str(value)


def _short(value: Any) -> str:
    text = _text(value)
    if text is None:
        return "null"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
