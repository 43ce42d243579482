import pyarrow as pa
import pytest

from braidmq.publish.encoding.outgoing import OutgoingMessage, Upload, row_of
from braidmq.publish.encoding.row_columns import RowColumns
from braidmq.publish.encoding.wire import cut, ipc_bytes, rows_table, with_uploads
from filer.format.text_rows import text_rows


def read(body: pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()


def test_rows_carry_only_the_columns_they_need() -> None:
    plain = rows_table(RowColumns.of([row_of(OutgoingMessage(b"v", "k"), upload=None, now_us=0)]))
    assert plain.to_pylist() == [{"key": b"k", "value": b"v"}]
    full = rows_table(
        RowColumns.of(
            [
                row_of(OutgoingMessage({"a": 1}, headers={"x": "y"}), upload=None, now_us=0),
                row_of(OutgoingMessage(None), upload=Upload("u1", 3, "abc"), now_us=0),
            ]
        )
    )
    assert full.to_pylist() == [
        {
            "key": None,
            "value": b'{"a":1}',
            "headers": [("x", b"y"), ("content-type", b"application/json")],
            "ref": None,
        },
        {"key": None, "value": None, "headers": None, "ref": {"upload": "u1", "size": 3, "sha256": "abc"}},
    ]  # fmt: skip


def test_an_ipc_body_tells_which_rows_were_given_as_text() -> None:
    messages = [OutgoingMessage(value) for value in ("a", b"b", None, "c")]
    body = read(ipc_bytes(rows_table(RowColumns.of(row_of(each, upload=None, now_us=0) for each in messages)).slice(1)))
    assert body.schema.names == ["key", "value"]
    told = text_rows(body.schema.metadata, body.num_rows)
    assert told is not None
    assert told.tolist() == [False, False, True]


def test_an_ipc_body_of_a_slice_holds_the_slice_only() -> None:
    table = pa.table({"key": pa.nulls(1000, pa.binary()), "value": [bytes(1000)] * 1000})
    body = ipc_bytes(table.slice(10, 3))
    assert body.size < 5000
    assert read(body).num_rows == 3


@pytest.mark.parametrize("request_bytes", [1, 500, 5000, 10**9])
def test_cuts_are_bounded_and_leave_nothing_out(request_bytes: int) -> None:
    values = [bytes(n % 700) for n in range(300)]
    table = pa.table({"key": [b"k"] * 300, "value": values})
    parts = list(cut(table, request_bytes))
    assert [value for part in parts for value in part["value"].to_pylist()] == values
    for part in parts:
        assert part.num_rows == 1 or sum(len(value) + 33 for value in part["value"].to_pylist()) <= request_bytes


def test_an_empty_table_is_no_request() -> None:
    assert list(cut(pa.table({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())}), 100)) == []


def test_uploaded_values_are_replaced_by_references() -> None:
    table = pa.table({"key": ["a", "b"], "value": ["large", "small"]})
    assert with_uploads(table, {0: Upload("u", 5, "s")}).to_pylist() == [
        {"key": "a", "value": None, "ref": {"upload": "u", "size": 5, "sha256": "s"}},
        {"key": "b", "value": "small", "ref": None},
    ]
