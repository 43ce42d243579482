import random
from typing import Any

import pyarrow as pa
import pytest

from filer.errors import InvalidInput
from filer.format.schema import MessageSchema
from mq.base.errors import Malformed
from mq.bodies.arrow_body import MOST_ROWS
from mq.bodies.arrow_body import decode_arrow as decode_arrow_in_steps
from mq.bodies.rows import MOST_HEADERS, MOST_REFS, Rows
from mq.limits.steps import at_once
from tests.support.rows.hostile_arrow import MIB, columns_that_share_bytes, zeros_compressed

BINARY, STRING, JSON = MessageSchema.of(), MessageSchema.of("string", "string"), MessageSchema.of("string", "json")
MUTATIONS = 4000


def stream(table: pa.Table, chunk_rows: int = 3, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=chunk_rows)
    return bytes(sink.getvalue())


def decode_arrow(body: bytes, schema: MessageSchema) -> Rows:
    return at_once(decode_arrow_in_steps(body, schema))


def everything() -> pa.Table:
    return pa.table(
        {
            "event_time": pa.array([1, None, 3, 4, 5], pa.timestamp("ms", "Europe/Berlin")),
            "headers": pa.array([[("a", "1"), ("b", "")], None, [], [], []], pa.map_(pa.large_string(), pa.string())),
            "value": pa.array(["v", None, "", "ü", "x"], pa.large_string()),
            "key": pa.array([b"k", None, b"", b"l", b"m"], pa.binary()),
        }
    )


@pytest.mark.parametrize("schema", [BINARY, STRING])
def test_columns_in_any_order_and_width(schema: MessageSchema) -> None:
    rows = decode_arrow(stream(everything()), schema)
    assert rows.batch.schema == schema.published
    assert rows.batch.num_rows == 5
    text = schema is STRING
    assert rows.batch["value"].to_pylist() == [
        v if text or v is None else v.encode() for v in ["v", None, "", "ü", "x"]
    ]
    assert rows.batch["headers"].to_pylist() == [[("a", b"1"), ("b", b"")], None, [], [], []]
    assert rows.batch["event_time"].cast(pa.int64()).to_pylist() == [1000, None, 3000, 4000, 5000]


@pytest.mark.parametrize(("unit", "micros"), [("s", 7_000_000), ("ms", 7_000), ("us", 7), ("ns", 0)])
@pytest.mark.parametrize("zone", [None, "UTC", "+05:30"])
def test_units_of_time(unit: str, micros: int, zone: str | None) -> None:
    table = pa.table({"value": [b"1"], "event_time": pa.array([7], pa.timestamp(unit, zone))})
    assert decode_arrow(stream(table), BINARY).batch["event_time"].cast(pa.int64()).to_pylist() == [micros]


def test_headers_that_cannot_be_null_are_stored_like_others() -> None:
    kind = pa.map_(pa.string(), pa.field("value", pa.binary(), nullable=False))
    table = pa.table({"value": [b"1"], "headers": pa.array([[("a", b"1")]], kind)})
    assert decode_arrow(stream(table), BINARY).batch["headers"].to_pylist() == [[("a", b"1")]]


def test_json_values_are_checked() -> None:
    good = pa.table({"value": ["1", None, "[]"]})
    assert decode_arrow(stream(good), JSON).batch["value"].to_pylist() == ["1", None, "[]"]
    with pytest.raises(InvalidInput, match="row 1 of the request: the topic's values must be JSON"):
        decode_arrow(stream(pa.table({"value": ["1", "text"]})), JSON)


def test_no_rows() -> None:
    empty = pa.table({"value": pa.array([], pa.binary())})
    assert decode_arrow(stream(empty), BINARY).batch.num_rows == 0


def test_streams_that_stop_between_two_batches_are_cut_short() -> None:
    """Arrow itself takes them for whole."""
    body = stream(everything())
    whole = pa.ipc.open_stream(body[:-8]).read_all()
    assert whole.num_rows == 5
    with pytest.raises(Malformed, match="end-of-stream mark"):
        decode_arrow(body[:-8], BINARY)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compression_is_seen_before_anything_is_inflated(compression: str) -> None:
    with pytest.raises(InvalidInput, match="without compression"):
        decode_arrow(stream(everything(), compression=compression), BINARY)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("of_old", [False, True], ids=["field", "custom metadata"])
def test_compression_is_refused_however_it_is_declared(codec: str, of_old: bool) -> None:
    body = zeros_compressed(1, codec, of_old=of_old)
    assert pa.ipc.open_stream(body).read_all().nbytes > MIB, "Arrow decodes it"
    with pytest.raises(InvalidInput, match="without compression"):
        decode_arrow(body, BINARY)


def test_a_stream_of_the_older_metadata_is_read() -> None:
    body = stream(everything(), metadata_version=pa.ipc.MetadataVersion.V4)
    assert decode_arrow(body, BINARY).batch.num_rows == 5


def test_a_dictionary_that_no_column_has_is_refused_before_it_is_decoded() -> None:
    plain, encoded = pa.table({"value": ["a"]}), pa.table({"value": pa.array(["a"]).dictionary_encode()})
    schema, _ = pa.ipc.MessageReader.open_stream(stream(plain))
    _, dictionary, _ = pa.ipc.MessageReader.open_stream(stream(encoded))
    body = schema.serialize().to_pybytes() + dictionary.serialize().to_pybytes() + stream(plain)[-8:]
    with pytest.raises(InvalidInput, match="a message of type dictionary: write plain columns"):
        decode_arrow(body, BINARY)


def test_columns_share_no_bytes_of_the_body() -> None:
    """Else a body could hold several times its own size."""
    body = columns_that_share_bytes(100_000)
    assert pa.ipc.open_stream(body).read_all().nbytes > 200_000
    with pytest.raises(InvalidInput, match="share bytes"):
        decode_arrow(body, BINARY)


def test_a_request_has_a_number_of_references_that_is_bounded() -> None:
    """Each is looked up in the store."""
    for count in (MOST_REFS, MOST_REFS + 1):
        refs = pa.array([{"upload": "u"}] * count + [None], pa.struct({"upload": pa.string()}))
        table = pa.table({"value": pa.array([None] * (count + 1), pa.binary()), "ref": refs})
        if count <= MOST_REFS:
            assert len(decode_arrow(stream(table, count + 1), BINARY).claims) == count
        else:
            with pytest.raises(InvalidInput, match=f"at most {MOST_REFS} messages with a ref"):
                decode_arrow(stream(table, count + 1), BINARY)


def test_values_of_json_are_checked_in_short_steps() -> None:
    """All at once, 4 MB of them would hold up every other request for most of a second."""
    steps = decode_arrow_in_steps(stream(pa.table({"value": ["1"] * 100_000}), 100_000), JSON)
    assert sum(1 for _ in steps) > 150


def test_damaged_streams_are_refused_and_never_crash() -> None:
    """Bytes changed, swapped, cut out: rows or a refusal, and rows that can be read."""
    pristine = stream(everything())
    chance = random.Random(7)
    for _ in range(MUTATIONS):
        body = bytearray(pristine)
        for _ in range(chance.choice([1, 1, 2, 4])):
            index = chance.randrange(len(body) - 12)
            match chance.randrange(4):
                case 0:
                    body[index] = chance.randrange(256)
                case 1:
                    body[index] ^= 1 << chance.randrange(8)
                case 2:
                    body[index : index + 4] = chance.choice([b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1\0\0\0"])
                case 3:
                    del body[index : index + chance.choice([1, 4, 8])]
        try:
            rows = decode_arrow(bytes(body), BINARY)
        except InvalidInput:
            continue
        rows.batch.validate(full=True)
        for name in ("key", "value", "headers"):
            rows.batch[name].to_pylist()


def test_headers_of_a_message_are_bounded() -> None:
    kind = pa.map_(pa.string(), pa.binary())
    for count in (MOST_HEADERS, MOST_HEADERS + 1):
        headers = pa.array([[("a", b"")], None, [(str(n), b"") for n in range(count)]], kind)
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([pa.array([b"v"] * 3, pa.binary()), headers], names=["value", "headers"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        body = sink.getvalue().to_pybytes()
        if count <= MOST_HEADERS:
            assert decode_arrow(body, MessageSchema.of()).batch.num_rows == 3
        else:
            with pytest.raises(InvalidInput, match=f"at most {MOST_HEADERS} headers, not {count}"):
                decode_arrow(body, MessageSchema.of())


def test_a_request_has_a_number_of_messages_that_is_bounded() -> None:
    empty = pa.table({"value": pa.array([b""] * (MOST_ROWS + 1))})
    with pytest.raises(InvalidInput, match=f"more than {MOST_ROWS} messages"):
        decode_arrow(stream(empty, 10_000), BINARY)
    assert decode_arrow(stream(empty.slice(1), 10_000), BINARY).batch.num_rows == MOST_ROWS
