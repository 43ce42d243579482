"""Arrow answers in parts: the bytes that Arrow writes, and no copy of what is long."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from filer.format.schema import MessageSchema
from filer.topic.topic_config import TopicConfig
from mq.forms.arrow_stream import JOINED_BYTES, SHORT_BYTES, arrow_page
from mq.forms.render import Part
from mq.topic.run import Run

STATE: Any = SimpleNamespace(topic="t", config=TopicConfig(), segments=(), group=None)
SCHEMA = MessageSchema.of().log
KIB = 1024


def table(values: list[bytes | None], *, headers: int = 0, keys: list[bytes | None] | None = None) -> pa.Table:
    count = len(values)
    columns: dict[str, list[Any]] = {
        "_offset": list(range(count)),
        "_timestamp": list(range(count)),
        "key": keys or [b"k%d" % number for number in range(count)],
        "value": values,
        "headers": [[(f"h{number}", b"v") for number in range(headers)] or None] * count,
    }
    columns |= {field.name: [None] * count for field in SCHEMA if field.name not in columns}
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def written(*runs: Run) -> list[Part]:
    """The parts of a page."""
    steps = arrow_page(STATE, runs, {})
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return list(end.value)


def as_arrow_writes_it(*runs: Run) -> bytes:
    """The same page in one buffer."""
    schema = pa.schema([pa.field("segment", pa.int64(), nullable=False), *SCHEMA])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for run in runs:
            numbers = pa.array([run.segment] * run.table.num_rows, pa.int64())
            writer.write_table(pa.Table.from_arrays([numbers, *run.table.columns], schema=schema))
    return sink.getvalue().to_pybytes()


LONG, SHORT = [b"x" * KIB] * 200, [b"x" * 100] * 20
PIECES = pa.concat_tables([table(LONG), table(SHORT), table(LONG, headers=3)])


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param([], id="none"),
        pytest.param([table(SHORT)], id="short"),
        pytest.param([table(LONG)], id="long"),
        pytest.param([table(LONG), table(SHORT), table(LONG, headers=20)], id="several"),
        pytest.param([PIECES], id="of several chunks"),
        pytest.param([table(LONG).slice(3, 190), table(LONG).slice(50, 2), PIECES.slice(150, 120)], id="slices"),
        pytest.param([table([None, *LONG, None], keys=[None] * 202), table([b"y" * KIB * KIB])], id="nulls, and a MiB"),
        pytest.param([table([b""] * 5000)], id="empty values"),
    ],
)
def test_the_parts_are_what_arrow_writes_into_one_buffer(tables: list[pa.Table]) -> None:
    runs = [Run.of(number, each.num_rows, each) for number, each in enumerate(tables)]
    assert b"".join(written(*runs)) == as_arrow_writes_it(*runs)


def addresses(parts: list[Part]) -> Iterator[tuple[int, int]]:
    for part in parts:
        buffer = pa.py_buffer(part)
        yield buffer.address, buffer.size


def test_long_values_stay_where_they_are_and_what_is_short_is_joined() -> None:
    values = table(LONG)
    parts = written(Run.of(0, len(LONG), values))
    data = values["value"].chunk(0).buffers()[2]
    assert (data.address, data.size) in addresses(parts)
    before, _, behind = parts
    assert len(before) < 4 * JOINED_BYTES and len(behind) < JOINED_BYTES


def test_a_part_of_something_large_is_copied_so_that_the_rest_can_go() -> None:
    whole = table([b"x" * KIB] * 4000)
    few = whole.slice(1000, 100)
    run = Run.of(0, 100, few)
    assert run.size_bytes > SHORT_BYTES
    data = whole["value"].chunk(0).buffers()[2]
    inside = range(data.address, data.address + data.size)
    assert not any(address in inside for address, _ in addresses(written(run)))
    # Most of it is kept, as it is.
    most = whole.slice(0, 3900)
    assert any(address in inside for address, _ in addresses(written(Run.of(0, 3900, most))))


def test_a_page_is_written_in_steps() -> None:
    runs = [Run.of(number, len(LONG), table(LONG)) for number in range(5)]
    assert sum(1 for _ in arrow_page(STATE, runs, {})) == 5
