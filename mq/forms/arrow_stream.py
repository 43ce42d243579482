"""Arrow IPC streams as parts of an answer: long buffers of columns stay in place, and are never copied."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from filer.topic.topic_schema import schema_of
from mq.forms.render import Part
from mq.limits.steps import Steps
from mq.topic.run import Run

if TYPE_CHECKING:
    from filer.topic.topic_state import TopicState

SHORT_BYTES = 64 * 1024
"""Runs of less, in all, are copied: a look at each of their buffers would take longer."""
JOINED_BYTES = 16 * 1024
"""Up to this size a copy takes less time than sending one more part."""
MOST_UNUSED_SHARE = 4
"""A part may keep the memory around it alive if no more than this share of that is unused: no budget counts it."""
SEGMENT = pa.field("segment", pa.int64(), nullable=False)


def arrow_page(state: "TopicState", runs: Sequence[Run], about: dict[str, Any]) -> Steps[Sequence[Part]]:
    """An Arrow IPC stream of the runs with a column `segment` in front."""
    return arrow_stream(pa.schema([SEGMENT, *schema_of(state).log]), [(run, [segment_column(run)]) for run in runs])


def arrow_stream(schema: pa.Schema, runs: Sequence[tuple[Run, Sequence[pa.Array]]]) -> Steps[Sequence[Part]]:
    """A stream of the runs, one or more record batches each. The given columns come before those of each run.

    The parts are what Arrow writes into one buffer. They keep the memory of the runs, and little more.
    """
    in_parts = sum(run.size_bytes for run, _ in runs) > SHORT_BYTES
    parts = _Parts()
    sink = pa.PythonFile(parts, "w") if in_parts else pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for run, before in runs:
            writer.write_table(pa.Table.from_arrays([*before, *run.table.columns], schema=schema))
            yield
    return parts.all_parts() if in_parts else [memoryview(sink.getvalue())]


def segment_column(run: Run) -> pa.Array:
    """The number of the run's segment, once for each message."""
    return pa.array(np.full(run.table.num_rows, run.segment, dtype=np.int64))


class _Parts:
    """A file that keeps the data written to it as parts. Arrow gives it the buffers of columns as they are."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._short: list[bytes] = []
        self._size_bytes = 0

    def write(self, data: "bytes | pa.Buffer") -> int:
        """Take the next data."""
        size_bytes = len(data)
        self._size_bytes += size_bytes
        if isinstance(data, bytes) or size_bytes <= JOINED_BYTES or _keeps_too_much(data):
            self._short.append(bytes(data))
        else:
            self._join()
            self._parts.append(memoryview(data))
        return size_bytes

    def tell(self) -> int:
        """The number of bytes written."""
        return self._size_bytes

    def writable(self) -> bool:
        """Return True."""
        return True

    def flush(self) -> None:
        """Do nothing: no data is held back."""

    def close(self) -> None:
        """Do nothing."""

    def all_parts(self) -> list[Part]:
        """All data that was written."""
        self._join()
        return self._parts

    def _join(self) -> None:
        if self._short:
            self._parts.append(b"".join(self._short))
            self._short = []


def _keeps_too_much(buffer: pa.Buffer) -> bool:
    """Whether a buffer is a part of a larger one, which would stay in memory as a whole."""
    whole = buffer
    while whole.parent is not None:
        whole = whole.parent
    return bool(whole.size - buffer.size > whole.size // MOST_UNUSED_SHARE)
