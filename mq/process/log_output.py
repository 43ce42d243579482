"""Writes the log to stderr: a line of text for people, or a JSON document a line for machines.

Every line tells the request and the trace that it belongs to, whoever logged it. Warnings and errors that repeat are
bounded by `repeat_limit`.
"""

import json
import logging
import math
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, TextIO

from filer import request_ids, tracing
from filer.clock import Clock
from filer.event_log import Event, as_text, plain
from mq.process.repeat_limit import RepeatLimit, Suppressed

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
# The info messages of libraries repeat what is logged elsewhere; kazoo warns at every attempt to connect.
_LIBRARY_LEVELS = {
    "uvicorn": "WARNING",
    "aiobotocore": "WARNING",
    "botocore": "WARNING",
    "httpx": "WARNING",
    "httpx2": "WARNING",
    "kazoo": "ERROR",
}


MOST_SUBJECT_CHARACTERS = 200
# What an event is about. Of each, only so many warnings are written in a minute.
_SUBJECTS = ("topic", "segment", "key", "broker", "reason", "operation", "path")


def write_log(level: LogLevel, form: LogFormat, clock: Clock) -> None:
    """Write what is logged in this process from now on to stderr."""
    handler = LimitedHandler(sys.stderr, clock)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for library, lowest in _LIBRARY_LEVELS.items():
        logging.getLogger(library).setLevel("DEBUG" if level == "debug" else lowest)


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines; warnings and errors as far as `RepeatLimit` admits them.

    What it leaves out of a minute is told before the next line after that minute, whatever that one is about, or at the
    end of the process.
    """

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        super().__init__(stream)
        self._clock, self._limit = clock, RepeatLimit()

    def emit(self, record: logging.LogRecord) -> None:
        """As `logging.Handler.emit`: the caller holds the handler's lock."""
        now_seconds = self._clock.monotonic_seconds()
        self._tell(self._limit.ended(now_seconds))
        if record.levelno < logging.WARNING or self._limit.admits(*_name_and_subject(record), now_seconds):
            super().emit(record)

    def close(self) -> None:
        """As `logging.Handler.close`."""
        self.acquire()
        try:
            self._tell(self._limit.ended(math.inf))
        finally:
            self.release()
        super().close()

    def _tell(self, suppressed: Iterable[Suppressed]) -> None:
        for each in suppressed:
            fields = {"name": each.name, "subject": each.subject, "count": each.lines}
            # Past the loggers: this handler alone has left something out.
            told = Event("events_suppressed", {name: value for name, value in fields.items() if value})
            record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, told, None, None)
            # It belongs to no request, also where a request has logged the line that follows.
            request_ids.of_nobody().run(super().emit, record)


def _name_and_subject(record: logging.LogRecord) -> tuple[str, str]:
    """By what a line is counted. Libraries' lines have the logger for a name, and what they say as a subject."""
    if not isinstance(record.msg, Event):
        return record.name, str(record.msg)[:MOST_SUBJECT_CHARACTERS]
    fields = record.msg.fields
    told = {name: str(fields[name])[:MOST_SUBJECT_CHARACTERS] for name in _SUBJECTS if name in fields}
    return record.msg.name, " ".join(as_text(told))


class TextLines(logging.Formatter):
    """Time, level, logger and message, then the ids as `name=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of the base class
        """As `logging.Formatter.formatMessage`."""
        ids = "".join(f" {name}={value}" for name, value in _ids().items() if name not in _fields(record))
        return super().formatMessage(record) + ids


class JsonLines(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `event` with its fields or else `message`, and the ids."""

    def format(self, record: logging.LogRecord) -> str:
        """As `logging.Formatter.format`."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, Event):
            line["event"] = record.msg.name
        else:
            line["message"] = record.getMessage()
        # A field named as one of these does not replace it.
        line |= {name: plain(value) for name, value in _fields(record).items() if name not in line}
        line |= _ids()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _ids() -> dict[str, str]:
    found = {"request_id": request_ids.current(), "trace_id": tracing.current().trace_id}
    return {name: value for name, value in found.items() if value is not None}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return dict(record.msg.fields) if isinstance(record.msg, Event) else {}
