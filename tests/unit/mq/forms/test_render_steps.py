"""Long pages are rendered in steps, none of which is long."""

from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pytest

from filer.format.schema import MessageSchema
from filer.times import EARLIEST_US, rfc3339
from filer.topic.topic_config import TopicConfig
from mq.forms.render import json_page, ndjson_page
from mq.limits.steps import Steps
from mq.topic.run import Run

STATE: Any = SimpleNamespace(topic="t", config=TopicConfig(), segments=(), group=None)


def run(segment: int, values: list[bytes], headers: int = 0, *, start_us: int = 0, pieces: int = 1) -> Run:
    count = len(values)
    columns = {
        "_offset": list(range(count)),
        "_timestamp": [start_us + 2 * number for number in range(count)],
        "value": values,
        "headers": [[(f"h{number}", b"") for number in range(headers)]] * count,
    }
    schema = MessageSchema.of().log
    table = pa.Table.from_arrays([pa.array(columns.get(f.name, [None] * count), f.type) for f in schema], schema=schema)
    cut = -(-count // pieces)
    return Run.of(segment, count, pa.concat_tables([table.slice(at, cut) for at in range(0, count, cut)]))


def rendered(steps: Steps[Any]) -> tuple[bytes, int]:
    """What was rendered, and in how many steps."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return b"".join(end.value), count
        count += 1


@pytest.mark.parametrize("pieces", [1, 7, 3000])
def test_a_page_of_several_segments_is_in_the_order_of_time_in_many_steps(pieces: int) -> None:
    runs = [run(0, [b"a"] * 3000, pieces=pieces), run(1, [b"b"] * 3000, start_us=1, pieces=pieces)]
    body, steps = rendered(json_page(STATE, runs, {"marker": "m"}))
    page = orjson.loads(body)
    assert [m["id"] for m in page["messages"]] == [f"{n % 2}-{n // 2}" for n in range(6000)]
    assert page["marker"] == "m" and steps > 6000 // 200
    lines, steps = rendered(ndjson_page(STATE, runs, {}))
    assert [orjson.loads(line)["id"] for line in lines.splitlines()] == [f"{n // 3000}-{n % 3000}" for n in range(6000)]
    assert steps > 6000 // 200


def test_an_empty_page_is_a_page() -> None:
    assert rendered(json_page(STATE, [], {"marker": "m"})) == (b'{"messages":[],"marker":"m"}', 1)


@pytest.mark.parametrize(("value", "headers"), [(b"x" * 4_000_000, 0), (b"", 1000)], ids=["large", "many headers"])
def test_a_few_messages_that_take_long_are_rendered_in_steps(value: bytes, headers: int) -> None:
    body, steps = rendered(json_page(STATE, [run(0, [value] * 4, headers)], {}))
    messages = orjson.loads(body)["messages"]
    assert all(m["value"] == value.decode() and len(m["headers"]) == headers for m in messages)
    assert list(messages[0])[-2:] == ["value", "headers"]
    assert steps >= 4


@pytest.mark.parametrize("event_times_us", [[None, None], [0, 1], [None, -1], [EARLIEST_US, None]])
def test_event_times_are_told_where_there_are_any(event_times_us: list[int | None]) -> None:
    plain = run(0, [b"a", b"b"])
    at = plain.table.schema.get_field_index("event_time")
    field = plain.table.schema.field(at)
    table = plain.table.set_column(at, field, pa.array(event_times_us, pa.int64()).cast(field.type))
    body, _ = rendered(json_page(STATE, [Run.of(0, 2, table)], {}))
    told = [None if each is None else rfc3339(each) for each in event_times_us]
    assert [message["event_time"] for message in orjson.loads(body)["messages"]] == told
