"""Messages as JSON, for readers."""

import base64
import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from filer.format.schema import TOPIC_FIELD, MessageSchema
from filer.json_texts import MOST_PARSED_BYTES, parsed_bytes
from filer.times import rfc3339_texts
from filer.topic.topic_schema import schema_of
from mq.forms.large_values import LARGE_BYTES, Aside, InPlace, LargeTexts
from mq.limits.steps import STEP_BYTES, STEP_ROWS, Steps
from mq.topic.run import Run

if TYPE_CHECKING:
    # `mq subscribe` prints messages in the broker's form, and needs no topic records for it.
    from filer.topic.topic_state import TopicState

JSON_TYPE = b"application/json"
Part = bytes | memoryview
"""A part of the body of an answer."""
_PART_BYTES = 1024 * 1024
# A message costs as much to put in its place as so many bytes.
_MESSAGE_BYTES = 64
_FEW_ROWS, _TINY_BYTES = 8, 16 * 1024
_BESIDE_BYTES = 16 * 1024
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


class MessageRenderer:
    """Renders the messages of one topic as JSON objects (docs/design.md §11).

    Large texts go to `large`, which puts them into the messages, or keeps them until the messages are written.
    """

    def __init__(self, topic: str, schema: MessageSchema, large: LargeTexts | None = None) -> None:
        self._topic, self._is_json = topic, schema.is_json
        self._large = InPlace() if large is None else large
        self._aside: list[tuple[str, memoryview]] = []

    def messages(self, run: Run) -> Iterator[dict[str, Any]]:
        """The JSON objects of a run's messages, in order."""
        return (message for message in self.in_steps(run) if message is not None)

    def in_steps(self, run: Run) -> Iterator[dict[str, Any] | None]:
        """As `messages`, with None wherever other work may go first."""
        batches, step_rows = _in_pieces(run)
        rows = 0
        for batch in batches:
            if rows and rows + batch.num_rows > step_rows:
                rows = 0
                yield None
            rows += batch.num_rows
            columns = (
                batch["_offset"].to_pylist(),
                _time_texts(batch["_timestamp"]),
                batch["key"].to_pylist(),
                _values_of_chunk(batch["value"]),
                _time_texts(batch["event_time"]),
                batch["headers"].to_pylist(),
                batch["_ref"].to_pylist(),
                *((batch[TOPIC_FIELD.name].to_pylist(),) if TOPIC_FIELD.name in batch.schema.names else ()),
            )
            for row in zip(*columns, strict=True):
                message = self._message(run.segment, *row)
                if self._aside:
                    yield from self._put_large(message)
                yield message

    def _put_large(self, message: dict[str, Any]) -> Steps[None]:
        headers = message.pop("headers")  # they come behind the value
        for name, data in self._aside:
            yield from self._large.put(message, name, data)
        self._aside.clear()
        message["headers"] = headers

    def _message(
        self,
        segment: int,
        offset: int,
        timestamp: str,
        key: bytes | str | None,
        value: bytes | str | memoryview | None,
        event_time: str | None,
        headers: Sequence[tuple[str, bytes]] | None,
        ref: dict[str, Any] | None,
        member: str | None = None,
    ) -> dict[str, Any]:
        message: dict[str, Any] = {
            "id": f"{segment}-{offset}",
            **({} if member is None else {"topic": member}),
            "segment": segment,
            "offset": offset,
            "timestamp": timestamp,
            "event_time": event_time,
        }
        self._put_text(message, "key", key)
        if ref is not None:
            message["ref"] = {**ref, "url": f"/v1/topics/{self._topic}/messages/{message['id']}/payload"}
        elif value is not None and (self._is_json or (headers and ("content-type", JSON_TYPE) in headers)):
            self._put_json(message, value)
        else:
            self._put_text(message, "value", value)
        message["headers"] = {name: _header(text) for name, text in headers or ()}
        return message

    def _put_text(self, message: dict[str, Any], name: str, data: bytes | str | memoryview | None) -> None:
        """Put the text as a string if it is UTF-8, else as base64 under `<name>_base64`."""
        if isinstance(data, memoryview):
            self._aside.append((name, data))
            return
        if data is None or isinstance(data, str):
            message[name] = data
            return
        try:
            message[name] = data.decode()
        except UnicodeDecodeError:
            message[f"{name}_base64"] = base64.b64encode(data).decode()

    def _put_json(self, message: dict[str, Any], value: bytes | str | memoryview) -> None:
        """Put the value as JSON if it is valid JSON, else as text: its producer may have declared JSON falsely.

        The check parses it. A value that would take too much memory for that is text too.

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


def _in_pieces(run: Run) -> tuple[list[pa.RecordBatch], int]:
    """The rows in pieces, and how many rows are about a step.

    Tiny pieces are put together: each costs as much as a row.
    """
    table, size_bytes = run.table, run.size_bytes
    rows, chunks = table.num_rows, table["_offset"].num_chunks
    if rows < chunks * _FEW_ROWS and size_bytes < chunks * _TINY_BYTES:
        table = table.combine_chunks()
    # Most of the bytes are values, which are taken one by one. Thousands of headers are taken at once.
    beside_bytes = size_bytes - table["value"].nbytes
    step_rows = max(1, min(STEP_ROWS, _BESIDE_BYTES * rows // max(beside_bytes, 1)))
    return table.to_batches(max_chunksize=step_rows), step_rows


def _time_texts(chunk: pa.Array) -> Sequence[str | None]:
    """Times as RFC 3339."""
    if chunk.null_count == len(chunk):
        return [None] * len(chunk)
    times_us = chunk.cast(pa.int64())
    if not chunk.null_count:
        return rfc3339_texts(times_us.to_numpy())
    texts = rfc3339_texts(times_us.fill_null(0).to_numpy())
    return [text if is_valid else None for text, is_valid in zip(texts, chunk.is_valid().to_pylist(), strict=True)]


def values_of(column: pa.ChunkedArray) -> Iterable[bytes | str | memoryview | None]:
    """The values, large ones as views of their bytes."""
    return chain.from_iterable(map(_values_of_chunk, column.chunks))


def _values_of_chunk(chunk: pa.Array) -> Iterable[bytes | str | memoryview | None]:
    """As `values_of`."""
    if chunk.nbytes <= LARGE_BYTES:
        values: list[bytes | str | None] = chunk.to_pylist()
        return values
    return _with_views(chunk)


def _with_views(chunk: pa.Array) -> Iterator[bytes | str | memoryview | None]:
    """As `values_of`, without the copy of its bytes that a scalar of Arrow has."""
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


class Written:
    """The parts of an answer as its messages are written, and when to let other work go first."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._step_bytes = 0

    def add(self, written: Sequence[bytes]) -> None:
        """Add a written message: one piece, or several with large texts between them."""
        for piece in written:
            self._held.append(piece)
            self._held_bytes += len(piece)
            if self._held_bytes >= _PART_BYTES:
                self._close()

    def step_is_over(self, size_bytes: int) -> bool:
        """Whether so much was written since the last time that other work may go first."""
        self._step_bytes += size_bytes
        if self._step_bytes < STEP_BYTES:
            return False
        self._step_bytes = 0
        return True

    def all_parts(self) -> list[Part]:
        """All of them."""
        if self._held:
            self._close()
        return self.parts

    def _close(self) -> None:
        self.parts.append(b"".join(self._held) if len(self._held) > 1 else self._held[0])
        self._held, self._held_bytes = [], 0


def json_message(state: "TopicState", run: Run) -> Steps[Sequence[Part]]:
    """The first message of a run as one JSON object."""
    large = Aside()
    for message in MessageRenderer(state.topic, schema_of(state), large).in_steps(run):
        if message is not None:
            return large.fill(orjson.dumps(message))
        yield
    raise AssertionError("a run of one message has one")


def json_page(state: "TopicState", runs: Sequence[Run], about: dict[str, Any]) -> Steps[Sequence[Part]]:
    """One JSON object: the messages of all segments by time, and the fields of `about`."""
    written = Written()
    written.add([b'{"messages":['])
    separator = b""
    for piece in (yield from _in_time_order(state, runs)):
        written.add([separator, *piece])
        separator = b","
        if written.step_is_over(sum(map(len, piece)) + _MESSAGE_BYTES):
            yield
    written.add([b"]", *(b",%b:%b" % (orjson.dumps(name), orjson.dumps(value)) for name, value in about.items()), b"}"])
    return written.all_parts()


def ndjson_page(state: "TopicState", runs: Sequence[Run], about: dict[str, Any]) -> Steps[Sequence[Part]]:
    """One message a line, run by run."""
    large, written = Aside(), Written()
    renderer = MessageRenderer(state.topic, schema_of(state), large)
    for run in runs:
        for message in renderer.in_steps(run):
            if message is None:
                yield
                continue
            line = large.fill(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))
            written.add(line)
            if written.step_is_over(sum(map(len, line))):
                yield
    return written.all_parts()


_Timed = tuple[str, int, int, Sequence[bytes]]


def _in_time_order(state: "TopicState", runs: Sequence[Run]) -> Steps[Iterable[Sequence[bytes]]]:
    """The messages of all segments, written, by time.

    No message comes before those of a predecessor, even if clocks differed.
    """
    large = Aside()
    renderer = MessageRenderer(state.topic, schema_of(state), large)
    by_segment: dict[int, list[Run]] = {}
    for run in runs:
        by_segment.setdefault(run.segment, []).append(run)
    predecessors = {segment.id: segment.predecessors for segment in state.segments}
    reached: dict[int, str] = {}
    timed: list[list[_Timed]] = []
    step_bytes = 0
    for segment in sorted(by_segment.keys() | predecessors.keys()):
        time = max((reached.get(before, "") for before in predecessors.get(segment, ())), default="")
        of_segment: list[_Timed] = []
        for run in by_segment.get(segment, ()):
            for message in renderer.in_steps(run):
                if message is None:
                    yield
                    continue
                time = max(time, message["timestamp"])
                written = large.fill(orjson.dumps(message))
                of_segment.append((time, segment, message["offset"], written))
                step_bytes += len(written[0])
                if step_bytes > STEP_BYTES:
                    step_bytes = 0
                    yield
        reached[segment] = time
        if of_segment:
            timed.append(of_segment)
    # The messages of each segment are in order already.
    return map(itemgetter(3), timed[0] if len(timed) == 1 else heapq.merge(*timed))
