"""Large values in JSON: what clients read of them is what was published."""

import base64
from typing import Any

import orjson
import pyarrow as pa
import pytest

from mq.forms.large_values import LARGE_BYTES, Aside, InPlace
from mq.forms.render import values_of
from mq.limits.steps import at_once as finish

TEXTS = ["x", "é", "日", "😀", '\x00\n"\\', "a😀", "日é"]
NO_TEXTS = {
    "bytes": bytes(range(256)) * 2000,
    "at the end": b"a" * 100_000 + b"\xff",
    "no continuation": "é".encode()[:1] * 3,
    "cut off": b"a\xf0\x9f",
}


def written(data: bytes) -> list[dict[str, Any]]:
    """The message, as each of the two ways writes it."""
    at_once: dict[str, Any] = {}
    finish(InPlace().put(at_once, "value", memoryview(data)))
    aside, later = Aside(), dict[str, Any]()
    finish(aside.put(later, "value", memoryview(data)))
    parts = aside.fill(orjson.dumps(later))
    assert all(len(part) <= 2**20 + 2**19 for part in parts), "in parts that are copied within a moment"
    return [orjson.loads(orjson.dumps(at_once)), orjson.loads(b"".join(parts))]


@pytest.mark.parametrize("text", TEXTS)
def test_a_large_text_is_the_string_it_is(text: str) -> None:
    whole = text * 200_003
    assert written(whole.encode()) == [{"value": whole}] * 2


@pytest.mark.parametrize("data", NO_TEXTS.values(), ids=NO_TEXTS)
def test_what_is_no_text_is_base64(data: bytes) -> None:
    for message in written(data):
        assert base64.b64decode(message["value_base64"], validate=True) == data


def test_texts_come_where_they_belong_in_whatever_order_they_are_written() -> None:
    aside, messages = Aside(), [dict[str, Any](id=number) for number in range(12)]
    for message in messages:
        finish(aside.put(message, "value", memoryview(str(message["id"]).encode())))
        message["headers"] = {"a\x003\x00": "\x003\x00", "n": str(message["id"])}
    page = aside.fill(orjson.dumps({"messages": messages[::-1], "marker": "m"}))
    assert orjson.loads(b"".join(page)) == {
        "messages": [
            {"id": n, "value": str(n), "headers": {"a\x003\x00": "\x003\x00", "n": str(n)}} for n in range(11, -1, -1)
        ],
        "marker": "m",
    }


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_values_of_all_sizes_are_found_in_a_cut_column(kind: pa.DataType) -> None:
    texts = ["s", None, "L" * (LARGE_BYTES + 1), "", "é" * LARGE_BYTES, None, "end"]
    rows = [text if text is None or kind == pa.string() else text.encode() for text in texts]
    column = pa.chunked_array([pa.array(rows[:3], kind), pa.array(rows, kind)]).slice(1, 8)
    found = [bytes(value) if isinstance(value, memoryview) else value for value in values_of(column)]
    wanted = (rows[:3] + rows)[1:9]
    as_bytes = [value.encode() if isinstance(value, str) else value for value in wanted]
    assert [value.encode() if isinstance(value, str) else value for value in found] == as_bytes
