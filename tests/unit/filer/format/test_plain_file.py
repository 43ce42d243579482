"""Files of plain messages are, byte for byte, those that Arrow writes."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filer.format.compression import owner_compression
from filer.format.plain.delta_packed import delta_packed
from filer.format.plain.plain_file import is_plain
from filer.format.requests import Position, RequestId, StoredRequest
from filer.format.schema import KeyType, MessageSchema, ValueType
from filer.format.segment_file import Footer, SegmentFileEncoder, decode, encode
from tests.support.thoroughness import few_or_many

NOISE = np.random.default_rng(7).bytes(1024**2)
DAWN_US = 1_700_000_000_000_000
FIRST = 1000


def noise(count: int, size_bytes: int) -> list[bytes]:
    return [NOISE[row % 1000 : row % 1000 + size_bytes] for row in range(count)]


def request(keys: list[bytes | None], values: list[bytes | None], schema: pa.Schema, minute: int | None) -> pa.Table:
    """The rows of one request, from the column `key` on."""
    count = len(values)
    times = [None if minute is None else DAWN_US + minute * 60_000_000 + row for row in range(count)]
    columns = [
        pa.array(keys, schema.field("key").type),
        pa.array(values, schema.field("value").type),
        pa.array(times, schema.field("event_time").type),
        pa.nulls(count, schema.field("headers").type),
        pa.nulls(count, schema.field("_ref").type),
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema([*schema][2:]))


def file_rows(requests: list[pa.Table], schema: pa.Schema, gaps_us: list[int]) -> pa.Table:
    """The requests as the rows of one file, a chunk each. Each came so much later than the one before it."""
    rows = pa.concat_tables(requests)
    stamps = itertools.accumulate(gaps_us, initial=DAWN_US)
    times = [stamp for one, stamp in zip(requests, stamps, strict=False) for _ in range(one.num_rows)]
    first = [
        pa.array(range(FIRST, FIRST + rows.num_rows), pa.int64()),
        pa.array(times, schema.field("_timestamp").type),
    ]
    return pa.Table.from_arrays([*first, *rows.columns], schema=schema)


def footer(rows: pa.Table, **more: object) -> Footer:
    return Footer(3, FIRST, rows.num_rows, "b/01J", DAWN_US, DAWN_US + 9, previous="7" * 32, **more)  # type: ignore[arg-type]


def by_arrow(rows: pa.Table, said: Footer) -> bytes:
    encoder = SegmentFileEncoder(rows.schema, compression=owner_compression(rows))
    encoder.add_row_group(rows)
    return encoder.finish(said).to_pybytes()


BINARY = MessageSchema.of().log
MANY_KEYS = [b"user-%d" % (row % 1000) for row in range(70_000)]


def one_request(count: int, size_bytes: int) -> pa.Table:
    return request(MANY_KEYS[:count], noise(count, size_bytes), BINARY, None)


@pytest.mark.parametrize(
    ("count", "size_bytes", "requests"),
    [
        pytest.param(1, 100, 1, id="one message"),
        pytest.param(3, 0, 5, id="empty values"),
        pytest.param(250, 1024, 4, id="a share of a batch"),
        pytest.param(1000, 1024, 3, id="pages end with a chunk"),
        pytest.param(1500, 1024, 2, id="pages end within a chunk"),
        pytest.param(45_000, 40, 1, id="pages end with their rows"),
        pytest.param(7000, 100, 9, id="pages end with rows and bytes, within chunks"),
        pytest.param(5, 300_000, 4, id="large values"),
        pytest.param(256, 1, 1, id="a block of differences"),
        pytest.param(257, 1, 1, id="and one more"),
    ],
)
def test_a_file_is_the_one_that_arrow_writes(count: int, size_bytes: int, requests: int) -> None:
    rows = file_rows([one_request(count, size_bytes)] * requests, BINARY, [number * 977 for number in range(requests)])
    assert encode(rows, footer(rows)).to_pybytes() == by_arrow(rows, footer(rows))


@pytest.mark.parametrize("size_bytes", [2**20 - 11, 2**20 - 10, 3 * 2**20])
def test_a_large_page_that_is_compressed_is_the_one_that_arrow_writes(size_bytes: int) -> None:
    rows = file_rows([request([b"key"], [bytes(size_bytes)], BINARY, None)], BINARY, [0])
    data = encode(rows, footer(rows))
    assert data.size < size_bytes // 10
    assert data.to_pybytes() == by_arrow(rows, footer(rows))


@pytest.mark.parametrize("value_type", ["binary", "string", "json"])
@pytest.mark.parametrize("filler", [b"a", NOISE], ids=["compressed", "as it is"])
def test_long_values_among_others_are_written_as_arrow_writes_them(value_type: ValueType, filler: bytes) -> None:
    schema = MessageSchema.of("binary", value_type).log

    def one(size_bytes: int) -> pa.Table:
        value = filler * (size_bytes // len(filler)) if value_type == "binary" else b'"' + b"x" * size_bytes + b'"'
        return request([b"key"], [value], schema, None)

    sizes = [3 * 2**20, 5, 2**20, 2**20 - 7, 2**21, 2**21, 9, 2**20]
    # A long value may be a part of a longer chunk.
    requests = [one(2**21), pa.concat_tables([one(7), one(2**21), one(2**20)]).combine_chunks().slice(1, 1)]
    rows = file_rows([*requests, *map(one, sizes)], schema, [3] * (len(sizes) + 2))
    assert encode(rows, footer(rows)).to_pybytes() == by_arrow(rows, footer(rows))


def test_a_long_value_is_copied_to_the_file_and_nowhere_else() -> None:
    rows = file_rows([request([b"key"], [NOISE * 16], BINARY, None)], BINARY, [0])
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    try:
        size_bytes = encode(rows, footer(rows)).size
    finally:
        pa.set_memory_pool(usual)
    assert size_bytes > 16 * len(NOISE)
    assert counted.max_memory() < 1.1 * size_bytes


@st.composite
def plain_rows(draw: st.DrawFn) -> pa.Table:
    key_type: KeyType = draw(st.sampled_from(["binary", "string"]))
    value_type: ValueType = draw(st.sampled_from(["binary", "string", "json"]))
    messages = MessageSchema.of(key_type, value_type)
    schema = messages.log
    texts = st.text(max_size=12).map(str.encode) if value_type != "json" else st.just(b'{"at": "dawn"}')
    values = texts if value_type != "binary" else st.binary(max_size=40)
    keys = st.none() if draw(st.booleans()) else st.text(max_size=6).map(str.encode)
    minute = draw(st.none() | st.integers(0, 10_000))
    requests = [
        request(draw(st.lists(keys, min_size=len(each), max_size=len(each))), each, schema, minute)
        for each in draw(st.lists(st.lists(values, min_size=1, max_size=40), min_size=1, max_size=6))
    ]
    if draw(st.booleans()):
        # As the shares of segments are: slices of other columns.
        requests = [one.slice(one.num_rows // 2, 1) for one in requests]
    rows = file_rows(requests, schema, draw(st.lists(st.integers(0, 2**40), min_size=5, max_size=5)))
    return messages.in_file(rows)


@settings(max_examples=few_or_many(50, 150), deadline=None)
@given(plain_rows())
def test_any_file_of_plain_messages_is_the_one_that_arrow_writes(rows: pa.Table) -> None:
    assert is_plain(rows)
    ids = (StoredRequest(RequestId("p", 4), Position(3, FIRST, rows.num_rows)),)
    said = footer(rows, requests=ids, sealed=True, windows=b"some")
    assert encode(rows, said).to_pybytes() == by_arrow(rows, said)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=700).map(sorted))
@settings(max_examples=few_or_many(25, 60), deadline=None)
def test_numbers_are_packed_so_that_arrow_reads_them(numbers: list[int]) -> None:
    """Also where they jump as no offsets and times do."""
    table = pa.table({"number": numbers})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, compression="none", use_dictionary=False, column_encoding={"number": "DELTA_BINARY_PACKED"}
    )
    assert delta_packed(np.array(numbers, np.int64)) in sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"key": [b"heron", None]}, id="some keys"),
        pytest.param({"value": [b"dawn", None]}, id="some values"),
        pytest.param({"value": [None, None]}, id="no value"),
        pytest.param({"event_time": [DAWN_US, None]}, id="some event times"),
        pytest.param({"headers": [[("seen", b"dawn")], None]}, id="headers"),
        pytest.param({"headers": [[], None]}, id="empty headers"),
        pytest.param({"_ref": [{"uri": "u", "size": 1, "etag": "e", "sha256": None}, None]}, id="a reference"),
    ],
)
def test_whatever_is_not_plain_is_left_to_arrow(change: dict[str, list[object]]) -> None:
    rows = file_rows([one_request(2, 10)], BINARY, [0])
    for name, values in change.items():
        field = BINARY.field(name)
        rows = rows.set_column(BINARY.get_field_index(name), field, pa.array(values, field.type))
    assert not is_plain(rows)
    assert decode(encode(rows, footer(rows)).to_pybytes()).equals(rows)
