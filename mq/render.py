"""Messages as readers get them: JSON for people, Arrow for programs."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from filer.schema import log_schema
from filer.topic_config import TopicConfig
from mq.topic_reader import Run

JSON_TYPE = b"application/json"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_EPOCH = datetime(1970, 1, 1)


def rfc3339(timestamp_us: int) -> str:
    """A UTC time with microseconds and `Z`."""
    moment = _EPOCH + timedelta(microseconds=timestamp_us)
    return f"{moment.isoformat(timespec='microseconds')}Z"


class MessageRenderer:
    """Renders the messages of one topic as JSON objects (DESIGN.md §11)."""

    def __init__(self, topic: str, config: TopicConfig) -> None:
        self._topic, self._json_values = topic, config.value_type == "json"

    def messages(self, run: Run) -> Iterator[dict[str, Any]]:
        """The JSON objects of a run's messages, in order."""
        table = run.table
        columns = (
            table["_offset"].to_pylist(),
            table["_timestamp"].cast(pa.int64()).to_pylist(),
            table["key"].to_pylist(),
            table["value"].to_pylist(),
            table["event_time"].cast(pa.int64()).to_pylist(),
            table["headers"].to_pylist(),
            table["_ref"].to_pylist(),
        )
        for row in zip(*columns, strict=True):
            yield self._message(run.segment, *row)

    def _message(
        self,
        segment: int,
        offset: int,
        timestamp_us: int,
        key: bytes | str | None,
        value: bytes | str | None,
        event_time_us: int | None,
        headers: Sequence[tuple[str, bytes]] | None,
        ref: dict[str, Any] | None,
    ) -> dict[str, Any]:
        message: dict[str, Any] = {
            "id": f"{segment}-{offset}",
            "segment": segment,
            "offset": offset,
            "timestamp": rfc3339(timestamp_us),
            "event_time": None if event_time_us is None else rfc3339(event_time_us),
        }
        _put_text(message, "key", key)
        if ref is not None:
            message["ref"] = {**ref, "url": f"/v1/topics/{self._topic}/messages/{message['id']}/payload"}
        elif value is not None and (self._json_values or (headers and ("content-type", JSON_TYPE) in headers)):
            _put_json(message, value)
        else:
            _put_text(message, "value", value)
        message["headers"] = {name: _header(text) for name, text in headers or ()}
        return message


def _put_text(message: dict[str, Any], name: str, data: bytes | str | None) -> None:
    """As a string where it is UTF-8, else as base64 under `<name>_base64`."""
    if data is None or isinstance(data, str):
        message[name] = data
        return
    try:
        message[name] = data.decode()
    except UnicodeDecodeError:
        message[f"{name}_base64"] = base64.b64encode(data).decode()


def _put_json(message: dict[str, Any], value: bytes | str) -> None:
    """As the JSON that it says it is; a producer may have lied, then as text.

    The text itself goes out: a parsed and written one would lose digits of long numbers, and orjson writes less
    deeply nested values than it reads. Its line breaks can only stand between tokens, and must not break lines.
    """
    text = value.encode() if isinstance(value, str) else value
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        _put_text(message, "value", value)
    else:
        message["value"] = orjson.Fragment(text.translate(_ONE_LINE))


def _header(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def ndjson(messages: Iterable[dict[str, Any]]) -> bytes:
    """One object a line."""
    return b"".join(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE) for message in messages)


def arrow_stream(runs: Sequence[Run], config: TopicConfig) -> bytes:
    """An Arrow IPC stream of the runs with a column `segment` in front, a record batch or more a run."""
    schema = log_schema(config.key_type, config.value_type)
    schema = pa.schema([pa.field("segment", pa.int64(), nullable=False), *schema])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for run in runs:
            segment = pa.array(np.full(run.table.num_rows, run.segment, dtype=np.int64))
            writer.write_table(pa.Table.from_arrays([segment, *run.table.columns], schema=schema))
    return bytes(sink.getvalue())
