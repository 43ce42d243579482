"""Logs events: each has a name and fields, in every package alike.

    _log = EventLog(__name__)
    _log.warning("segment_lost", topic=topic, segment=segment_id, error=error)

Events go to the loggers of the standard library. So a program that uses these packages decides what happens to them; if
it decides nothing, nothing happens. `mq.process.log_output` writes them as text or JSON. The list in docs/operations.md
has every name and its fields, and a test compares the list with the calls.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from itertools import islice

MOST_CHARACTERS = 2000
MOST_ITEMS = 20
# The characters that may stand in a line of text as they are: none separates fields, ends a line or moves a cursor.
_BARE = re.compile(r"[A-Za-z0-9_.:;/@+*?&%#$!^~<>()\[\]{}|',-]+\Z")

# A tuple: a check against `bool | int | float` takes twice as long, and every field is checked.
_NUMBERS = (int, float)

Plain = str | int | float | bool | None | list[str | int]


class Event:
    """The message of a log record: the name of what happened, and its fields. As text it is one line."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Mapping[str, object]) -> None:
        self.name, self.fields = name, fields

    def __str__(self) -> str:
        return " ".join((self.name, *as_text(self.fields)))


class EventLog:
    """Logs events under the name of a module.

    A field that is None is left out. A field named `from_` is written as `from`. The writer of the lines adds the ids
    of the request and of its trace. Fields may hold what clients sent: the writer bounds and escapes them. Never pass
    secrets, nor values of messages.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: object) -> None:
        """Something that matters only in the search for a fault."""
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Something that happens as it should."""
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Something that may need an operator, or explains why something else took long."""
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, /, *, traceback_of: BaseException | None = None, **fields: object) -> None:
        """Something that needs an operator. `traceback_of` is an unforeseen error."""
        self._emit(logging.ERROR, event, fields, traceback_of)

    def _emit(
        self, level: int, event: str, fields: Mapping[str, object], traceback_of: BaseException | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            named = {name.rstrip("_"): value for name, value in fields.items() if value is not None}
            self._logger.log(level, Event(event, named), exc_info=traceback_of, stacklevel=3)


def plain(value: object) -> Plain:
    """A field as JSON has it: bounded, and without objects."""
    if type(value) is str:
        return _bounded(value)
    if value is None or isinstance(value, _NUMBERS):
        return value
    if isinstance(value, BaseException):
        return _bounded(f"{type(value).__name__}: {value}")
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        items = list(islice(value, MOST_ITEMS + 1))
        shown = [each if isinstance(each, int) else _bounded(str(each)) for each in items[:MOST_ITEMS]]
        return [*shown, "…"] if len(items) > MOST_ITEMS else shown
    return _bounded(str(value))


def as_text(fields: Mapping[str, object]) -> Iterable[str]:
    """The fields as `name=value`. Whatever a value holds, it begins no new field and no new line."""
    return (f"{name}={_short_text(value) or _text(plain(value))}" for name, value in fields.items())


def _short_text(value: object) -> str | None:
    """The text of most values, in a third of the time: an access log has a dozen for each request. Else None."""
    if type(value) is int:
        return str(value)
    if type(value) is str and len(value) < MOST_CHARACTERS and _BARE.match(value):
        return value
    return None


def _text(value: Plain) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        value = ",".join(map(str, value))
    text = str(value)
    return text if _BARE.match(text) else json.dumps(text, ensure_ascii=not text.isprintable())


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
