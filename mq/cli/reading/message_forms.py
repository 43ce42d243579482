"""Format pages of messages as bytes to print, one block at a time.

Printing values, the default of `mq subscribe`, does without `pyarrow.compute` and the broker's form of messages: they
take longer to import than a short reading lasts.
"""

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa

from filer.format.schema import MessageSchema
from filer.nulls import nulls_of
from mq.cli.output import shown
from mq.cli.reading.reading import Form

if TYPE_CHECKING:
    from mq.topic.run import Run

Messages = Callable[[pa.Table], Iterator[dict[str, object]]]

_ID_WIDTH, _TIME_WIDTH, _TOPIC_WIDTH, _KEY_WIDTH = 16, 27, 24, 24
_PIPE_WIDTH = 200


class ValuesForm:
    """Only the values, each followed by `end`."""

    def __init__(self, *, end: bytes) -> None:
        self.head = self.tail = b""
        self.end = end

    def page(self, table: pa.Table) -> bytes:
        """The values of the rows. A null value prints as an empty one."""
        values = [value for chunk in table["value"].chunks for value in _values_of(chunk)]
        return self.end.join(values) + self.end if values else b""


class JsonForm:
    """The messages in the JSON form of the broker: one per line, or all as one list."""

    def __init__(self, messages: Messages, *, as_list: bool) -> None:
        self.head, self.tail = (b"[\n", b"\n]\n") if as_list else (b"", b"")
        self._messages = messages
        self._between = b",\n" if as_list else b"\n"
        self._as_list = as_list
        self._any = False

    def page(self, table: pa.Table) -> bytes:
        """The rows as JSON."""
        if not table.num_rows:
            return b""
        block = self._between.join(orjson.dumps(message) for message in self._messages(table))
        if not self._as_list:
            return block + b"\n"
        block = self._between + block if self._any else block
        self._any = True
        return block


class TableForm:
    """One line per message, in columns, cut at the width of the terminal."""

    def __init__(self, messages: Messages, *, grouped: bool) -> None:
        self._messages = messages
        self._width = shutil.get_terminal_size((_PIPE_WIDTH, 0)).columns
        self._grouped = grouped
        self.head, self.tail = self._line("id", "time", "topic", "key", "value").encode(), b""

    def page(self, table: pa.Table) -> bytes:
        """The rows as lines."""
        return "".join(map(self._row, self._messages(table))).encode()

    def _row(self, message: dict[str, object]) -> str:
        value = message.get("value", message.get("value_base64", message.get("ref")))
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        key = message.get("key", message.get("key_base64"))
        topic = str(message.get("topic", ""))
        return self._line(str(message["id"]), str(message["timestamp"]), topic, shown(key), shown(text))

    def _line(self, id_: str, time: str, topic: str, key: str, value: str) -> str:
        of_topic = f"{topic:<{_TOPIC_WIDTH}} " if self._grouped else ""
        line = f"{id_:<{_ID_WIDTH}} {time:<{_TIME_WIDTH}} {of_topic}{key:<{_KEY_WIDTH}} {value}"
        return (line if len(line) <= self._width else line[: self._width - 1] + "…") + "\n"


MessageForm = ValuesForm | JsonForm | TableForm


def form_of(form: Form, topic: str, schema: MessageSchema) -> MessageForm:
    """The formatter for the name `form`."""
    if form in ("lines", "raw"):
        return ValuesForm(end=b"\n" if form == "lines" else b"")
    from mq.forms.render import MessageRenderer

    renderer = MessageRenderer(topic, schema)

    def messages(table: pa.Table) -> Iterator[dict[str, object]]:
        for run in _runs(table):
            yield from renderer.messages(run)

    if form == "table":
        return TableForm(messages, grouped=schema.is_grouped)
    return JsonForm(messages, as_list=form == "json")


def _runs(table: pa.Table) -> "Iterator[Run]":
    """The rows of the page as runs of one segment each, in their order."""
    from mq.topic.run import Run

    segments = table["segment"].to_numpy()
    columns = table.drop_columns(["segment"])
    bounds = np.flatnonzero(np.diff(segments, prepend=-1, append=-1)).tolist() if len(segments) else []
    for start, stop in pairwise(bounds):
        rows = columns.slice(start, stop - start)
        yield Run.of(int(segments[start]), rows["_offset"][-1].as_py() + 1, rows)


def _values_of(chunk: pa.Array) -> list[memoryview | bytes]:
    """The bytes of each value, in place in memory (no copy); empty for a null."""
    offsets, data = chunk.buffers()[1:]
    if not len(chunk) or data is None:
        return [b""] * len(chunk)
    bounds = np.frombuffer(offsets, np.int32, len(chunk) + 1, chunk.offset * 4).tolist()
    found: list[memoryview | bytes] = [memoryview(data)[start:stop] for start, stop in pairwise(bounds)]
    if chunk.null_count:
        for row in np.flatnonzero(nulls_of(chunk)).tolist():
            found[row] = b""
    return found
