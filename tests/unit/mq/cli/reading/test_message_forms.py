import json

import pyarrow as pa
import pytest

from filer.format.schema import HEADERS, REF, TIMESTAMP, MessageSchema
from mq.cli.reading.message_forms import MessageForm, form_of
from mq.cli.reading.reading import Form

NOW_US = 1_700_000_000_000_000


def form(name: Form, value_type: str = "binary") -> MessageForm:
    return form_of(name, "t", MessageSchema.of("binary", value_type))


def page(
    values: list[bytes | None], *, segments: list[int] | None = None, keys: list[bytes | None] | None = None
) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "segment": pa.array(segments or [0] * count, pa.int64()),
            "_offset": pa.array(range(count), pa.int64()),
            "_timestamp": pa.array([NOW_US] * count, pa.int64()).cast(TIMESTAMP),
            "key": pa.array(keys or [None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "event_time": pa.nulls(count, TIMESTAMP),
            "headers": pa.nulls(count, HEADERS),
            "_ref": pa.nulls(count, REF),
        }
    )


def test_lines_and_raw_give_the_values_as_they_are() -> None:
    rows = page([b"a", None, b"", b"\xff\x00", b"e"])
    assert bytes(form("lines").page(rows)) == b"a\n\n\n\xff\x00\ne\n"
    assert bytes(form("raw").page(rows)) == b"a\xff\x00e"
    assert bytes(form("raw").page(rows.slice(3))) == b"\xff\x00e"
    assert bytes(form("lines").page(pa.concat_tables([rows, rows]).slice(4, 2))) == b"e\na\n"


def test_lines_of_text_and_json_topics() -> None:
    rows = page([b"a", None])
    text = rows.set_column(4, "value", rows["value"].cast(pa.string()))
    assert bytes(form("lines", "json").page(text)) == b"a\n\n"


@pytest.mark.parametrize("name", ["lines", "raw", "json", "ndjson", "table"])
def test_no_rows_are_no_bytes(name: Form) -> None:
    assert bytes(form(name).page(page([]))) == b""


def test_ndjson_is_what_the_broker_writes() -> None:
    rows = page([b"a", b"\xff"], segments=[3, 5], keys=[b"k", None])
    first, second = (json.loads(line) for line in bytes(form("ndjson").page(rows)).splitlines())
    assert first == {
        "id": "3-0", "segment": 3, "offset": 0, "timestamp": "2023-11-14T22:13:20.000000Z", "event_time": None,
        "key": "k", "value": "a", "headers": {},
    }  # fmt: skip
    assert (second["id"], second["value_base64"]) == ("5-1", "/w==")


def test_pages_of_json_make_one_list() -> None:
    chosen = form("json")
    text = b"".join(
        bytes(part) for part in (chosen.head, chosen.page(page([b"a"])), chosen.page(page([b"b", b"c"])), chosen.tail)
    )
    assert [message["value"] for message in json.loads(text)] == ["a", "b", "c"]
    empty = form("json")
    assert json.loads(empty.head + empty.tail) == []


def test_a_table_keeps_to_the_width_and_lets_nothing_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    chosen = form("table")
    lines = (chosen.head + bytes(chosen.page(page([b"\x1b[2Jx\ny", b"z" * 500])))).decode().splitlines()
    assert lines[0].split() == ["id", "time", "key", "value"]
    assert r"\x1b[2Jx\ny" in lines[1]
    assert len(lines) == 3 and len(lines[2]) == 100 and lines[2].endswith("…")


def test_a_table_of_a_topic_group_tells_the_topic_of_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    chosen = form_of("table", "shop", MessageSchema.of(grouped=True))
    rows = page([b"x", b"y"], keys=[b"k", None]).append_column("_topic", pa.array(["orders", "payments"]))
    lines = (chosen.head + bytes(chosen.page(rows))).decode().splitlines()
    assert [line.split()[0:1] + line.split()[2:] for line in lines] == [
        ["id", "topic", "key", "value"], ["0-0", "orders", "k", "x"], ["0-1", "payments", "y"],
    ]  # fmt: skip
    assert len({line.index(word) for line, word in zip(lines, ("topic", "orders", "payments"), strict=True)}) == 1
