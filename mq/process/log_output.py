"""Writes the log to stderr: a line of text for people, or a JSON document a line for machines.

Every line tells the request and the trace that it belongs to, whoever logged it.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from filer import request_ids, tracing
from filer.event_log import Event, plain

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


def write_log(level: LogLevel, form: LogFormat) -> None:
    """Write what is logged in this process from now on to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for library, lowest in _LIBRARY_LEVELS.items():
        logging.getLogger(library).setLevel("DEBUG" if level == "debug" else lowest)


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
