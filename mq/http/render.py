"""Messages as readers get them: as JSON for people, as Arrow for programs."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from filer.format.schema import log_schema
from filer.times import rfc3339
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState
from mq.base.json_size import MOST_PARSED_BYTES, parsed_bytes
from mq.http.large_values import LARGE_BYTES, Aside, InPlace, LargeTexts
from mq.topic.run import Run

JSON_TYPE = b"application/json"
Part = bytes | memoryview
"""A part of the body of an answer."""
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


class MessageRenderer:
    """Renders the messages of one topic as JSON objects (docs/design.md §11).

    Large texts go to `large`, which puts them into the messages or keeps them for what is written of these.
    """

    def __init__(self, topic: str, config: TopicConfig, large: LargeTexts | None = None) -> None:
        self._topic, self._json_values = topic, config.value_type == "json"
        self._large = InPlace() if large is None else large

    def messages(self, run: Run) -> Iterator[dict[str, Any]]:
        """The JSON objects of a run's messages, in order."""
        table = run.table
        columns = (
            table["_offset"].to_pylist(),
            table["_timestamp"].cast(pa.int64()).to_pylist(),
            table["key"].to_pylist(),
            values_of(table["value"]),
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
        value: bytes | str | memoryview | None,
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
        self._put_text(message, "key", key)
        if ref is not None:
            message["ref"] = {**ref, "url": f"/v1/topics/{self._topic}/messages/{message['id']}/payload"}
        elif value is not None and (self._json_values or (headers and ("content-type", JSON_TYPE) in headers)):
            self._put_json(message, value)
        else:
            self._put_text(message, "value", value)
        message["headers"] = {name: _header(text) for name, text in headers or ()}
        return message

    def _put_text(self, message: dict[str, Any], name: str, data: bytes | str | memoryview | None) -> None:
        """As a string if it is UTF-8, else as base64 under `<name>_base64`."""
        if isinstance(data, memoryview):
            self._large.put(message, name, data)
            return
        if data is None or isinstance(data, str):
            message[name] = data
            return
        try:
            message[name] = data.decode()
        except UnicodeDecodeError:
            message[f"{name}_base64"] = base64.b64encode(data).decode()

    def _put_json(self, message: dict[str, Any], value: bytes | str | memoryview) -> None:
        """As JSON if it is valid JSON, else as text: its producer may have declared JSON falsely.

        To check it, it is parsed. What would take too much memory then is text too.

        The text is copied as it is. Parsed and written again it would lose digits of long numbers, and orjson cannot
        write values as deeply nested as it reads. Line breaks become spaces, since NDJSON needs one line; in valid JSON
        they can only stand between tokens.
        """
        text = value.encode() if isinstance(value, str) else bytes(value)
        if parsed_bytes(text) > MOST_PARSED_BYTES:
            self._put_text(message, "value", value)
            return
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            self._put_text(message, "value", value)
        else:
            message["value"] = orjson.Fragment(text.translate(_ONE_LINE))


def values_of(column: pa.ChunkedArray) -> Iterable[bytes | str | memoryview | None]:
    """The values, large ones as views of their bytes."""
    if column.nbytes <= LARGE_BYTES:
        values: list[bytes | str | None] = column.to_pylist()
        return values
    return chain.from_iterable(map(_values_of_chunk, column.chunks))


def _values_of_chunk(chunk: pa.Array) -> Iterator[bytes | str | memoryview | None]:
    """As `values_of`. A scalar of Arrow would have a copy of its bytes."""
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(chunk) + 1, 4 * chunk.offset).tolist()
    for row, (start, stop) in enumerate(pairwise(bounds)):
        if stop - start > LARGE_BYTES:
            yield memoryview(data)[start:stop]
        else:
            yield chunk[row].as_py()


def _header(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def json_message(state: TopicState, run: Run) -> Sequence[Part]:
    """The first message of a run as one JSON object."""
    large = Aside()
    return large.fill(orjson.dumps(next(MessageRenderer(state.topic, state.config, large).messages(run))))


def json_page(state: TopicState, runs: Sequence[Run], about: dict[str, Any]) -> Sequence[Part]:
    """One JSON object: the messages of all segments by time, and what `about` says of the page."""
    large = Aside()
    renderer = MessageRenderer(state.topic, state.config, large)
    return large.fill(orjson.dumps({"messages": in_time_order(state, runs, renderer), **about}))


def ndjson_page(state: TopicState, runs: Sequence[Run], about: dict[str, Any]) -> Sequence[Part]:
    """One message a line, run by run."""
    large = Aside()
    renderer = MessageRenderer(state.topic, state.config, large)
    messages = (message for run in runs for message in renderer.messages(run))
    return large.fill(b"".join(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE) for message in messages))


def arrow_page(state: TopicState, runs: Sequence[Run], about: dict[str, Any]) -> Sequence[Part]:
    """An Arrow IPC stream of the runs with a column `segment` in front, one or more record batches a run."""
    schema = log_schema(state.config.key_type, state.config.value_type)
    schema = pa.schema([pa.field("segment", pa.int64(), nullable=False), *schema])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for run in runs:
            segment = pa.array(np.full(run.table.num_rows, run.segment, dtype=np.int64))
            writer.write_table(pa.Table.from_arrays([segment, *run.table.columns], schema=schema))
    return [memoryview(sink.getvalue())]


def in_time_order(state: TopicState, runs: Sequence[Run], renderer: MessageRenderer) -> list[dict[str, Any]]:
    """The messages of all segments by time. None comes before those of a predecessor, even if clocks differed."""
    by_segment: dict[int, list[Run]] = {}
    for run in runs:
        by_segment.setdefault(run.segment, []).append(run)
    predecessors = {segment.id: segment.predecessors for segment in state.segments}
    reached: dict[int, str] = {}
    timed: list[tuple[str, int, int, dict[str, Any]]] = []
    for segment in sorted(by_segment.keys() | predecessors.keys()):
        time = max((reached.get(before, "") for before in predecessors.get(segment, ())), default="")
        for run in by_segment.get(segment, ()):
            for message in renderer.messages(run):
                time = max(time, message["timestamp"])
                timed.append((time, segment, message["offset"], message))
        reached[segment] = time
    timed.sort(key=itemgetter(0, 1, 2))
    return [message for _, _, _, message in timed]
