"""Writes the log to stderr: a line of text for people, or a JSON document a line for machines.

Every line has the ids of its request and its trace, whichever module logged it. Repeated warnings and errors are
bounded by `repeat_limit`.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO

import orjson

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
LOOK_SECONDS = 5.0
"""At most so long after a minute, a line reports what was left out of it."""
# The subject of an event. For each, only so many warnings are written in a minute.
_SUBJECTS = ("topic", "segment", "key", "broker", "reason", "operation", "path")


def write_log(level: LogLevel, form: LogFormat, clock: Clock) -> "LimitedHandler":
    """Write this process's log to stderr from now on. A caller with an event loop runs `tell_in_time`."""
    # No line shows them, and finding them takes longer than the rest of a line.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = LimitedHandler(sys.stderr, clock)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for library, lowest in _LIBRARY_LEVELS.items():
        logging.getLogger(library).setLevel("DEBUG" if level == "debug" else lowest)
    return handler


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines; warnings and errors as far as `RepeatLimit` admits them.

    Lines left out of a minute are reported when the minute is over: before the next line on any subject, or by
    `tell_in_time` if nothing else is logged, or at the end of the process.
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

    async def tell_in_time(self) -> None:
        """Report lines left out of finished minutes, soon after each, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self._tell_ended(self._clock.monotonic_seconds())

    def close(self) -> None:
        """As `logging.Handler.close`."""
        self._tell_ended(math.inf)
        super().close()

    def _tell_ended(self, now_seconds: float) -> None:
        self.acquire()
        try:
            self._tell(self._limit.ended(now_seconds))
        finally:
            self.release()

    def _tell(self, suppressed: Iterable[Suppressed]) -> None:
        for each in suppressed:
            fields = {"name": each.name, "subject": each.subject, "count": each.lines}
            # Past the loggers: only this handler has left something out.
            told = Event("events_suppressed", {name: value for name, value in fields.items() if value})
            record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, told, None, None)
            # It belongs to no request, even if a request has logged the line that follows.
            request_ids.of_nobody().run(super().emit, record)


def _name_and_subject(record: logging.LogRecord) -> tuple[str, str]:
    """Return what a line is counted by. Lines of libraries have the logger as name, and their text as subject."""
    if not isinstance(record.msg, Event):
        return record.name, str(record.msg)[:MOST_SUBJECT_CHARACTERS]
    fields = record.msg.fields
    told = {name: str(fields[name])[:MOST_SUBJECT_CHARACTERS] for name in _SUBJECTS if name in fields}
    return record.msg.name, " ".join(as_text(told))


class TextLines(logging.Formatter):
    """Time, level, logger and message, then the ids as `name=value`, then a traceback on lines of its own."""

    def __init__(self) -> None:
        super().__init__()
        # Lines of the same second share its text.
        self._second, self._second_text = -1, ""

    def format(self, record: logging.LogRecord) -> str:
        """As `logging.Formatter.format`."""
        fields = _fields(record)
        ids = "".join([f" {name}={value}" for name, value in _ids().items() if name not in fields])
        line = f"{self._time_of(record)} {record.levelname} {record.name}: {record.getMessage()}{ids}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line

    def _time_of(self, record: logging.LogRecord) -> str:
        if (second := int(record.created)) != self._second:
            self._second, self._second_text = second, time.strftime(self.default_time_format, time.localtime(second))
        return f"{self._second_text},{int(record.msecs):03d}"


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
        try:
            return orjson.dumps(line).decode()
        except TypeError:  # a number of more than 64 bits, or half a surrogate pair, which UTF-8 does not have
            return json.dumps(line)


def _ids() -> dict[str, str]:
    found = {}
    if (request_id := request_ids.current()) is not None:
        found["request_id"] = request_id
    if (trace_id := tracing.current().trace_id) is not None:
        found["trace_id"] = trace_id
    return found


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    return record.msg.fields if isinstance(record.msg, Event) else {}
