"""Which columns of an owner's file are compressed, and the memory in which a large one is encoded."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.format.compression import owner_compression
from filer.format.schema import TIMESTAMP, MessageSchema
from filer.format.segment_file import Footer, SegmentFileEncoder, decode, encode

NOISE = random.Random(7).randbytes(4 * 1024**2)
TEXT = b'{"seen": "at dawn", "by": "the heron that stands under the bridge"}' * 64


def table(values: list[bytes | None], key: bytes = b"key", value_type: str = "binary") -> pa.Table:
    count = len(values)
    schema = MessageSchema.of("binary", value_type).log  # type: ignore[arg-type]
    columns = [
        pa.array(range(count), pa.int64()),
        pa.array([1_700_000_000_000_000] * count, TIMESTAMP),
        pa.array([key] * count, pa.binary()),
        pa.array(values, schema.field("value").type),
        *(pa.nulls(count, schema.field(name).type) for name in ("event_time", "headers", "_ref")),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def noise(count: int, size_bytes: int) -> list[bytes | None]:
    return [NOISE[at : at + size_bytes] for at in range(0, count * size_bytes, size_bytes)]


def footer(count: int) -> Footer:
    return Footer(3, 0, count, "b/1", 1, 2)


def codecs(data: bytes) -> dict[str, str]:
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    return {(column := group.column(i)).path_in_schema: column.compression for i in range(group.num_columns)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(noise(1000, 1024), "UNCOMPRESSED", id="noise"),
        pytest.param([TEXT] * 500, "LZ4", id="text"),
        pytest.param(noise(10, 1024), "LZ4", id="little noise"),
        pytest.param([None] * 3 + noise(1000, 1024) + [b""] * 3, "UNCOMPRESSED", id="noise between nothing"),
        pytest.param([None] * 100_000 + noise(1, 512 * 1024), "UNCOMPRESSED", id="one large message, and nulls"),
        pytest.param([b""] * 1000 + [TEXT * 200] + [None] * 1000, "LZ4", id="one large text, and nothing"),
    ],
)
def test_values_are_compressed_where_that_makes_them_smaller(values: list[bytes | None], expected: str) -> None:
    rows = table(values)
    data = encode(rows, footer(len(values))).to_pybytes()
    found = codecs(data)
    assert found.pop("value") == expected
    assert found["key"] == found["_offset"] == "LZ4"
    assert decode(data).equals(rows)


def test_the_choice_sees_every_part_of_a_file_of_several_requests() -> None:
    text, random_bytes = table([TEXT] * 200), table(noise(1000, 1024))
    empty = text.slice(0, 0)
    assert owner_compression(pa.concat_tables([empty, random_bytes.slice(1), empty, random_bytes])) != "lz4"
    assert owner_compression(pa.concat_tables([random_bytes.slice(0, 200), empty, text, text, text, text])) == "lz4"


@pytest.mark.parametrize(
    ("values", "expected"), [([TEXT] * 500, "LZ4"), ([b"0x%s" % NOISE[:300_000].hex().encode()], "UNCOMPRESSED")]
)
def test_json_values_are_tried_as_well(values: list[bytes | None], expected: str) -> None:
    # LZ4 finds repeated words, but no digits that are used more often than others.
    data = encode(
        MessageSchema.of("binary", "json").in_file(table(values, value_type="json")), footer(len(values))
    ).to_pybytes()
    assert codecs(data)["value"] == expected


def test_a_large_file_is_encoded_in_memory_of_its_size() -> None:
    rows = table(noise(4000, 1000))
    data = encode(rows, footer(4000))
    assert 4_000_000 < data.size < rows.nbytes
    assert decode(data.to_pybytes()).equals(rows)


def test_a_file_larger_than_its_room_is_encoded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, small = table(noise(4000, 1000)), 1024 * 1024
    with pytest.raises(OSError, match="out of bounds"):
        SegmentFileEncoder(rows.schema, compression="lz4", room_bytes=small).add_row_group(rows)
    monkeypatch.setattr("filer.format.segment_file._room_bytes", lambda *_: small)
    assert decode(encode(rows, footer(4000)).to_pybytes()).equals(rows)


def test_the_footer_may_be_what_does_not_fit() -> None:
    rows = table(noise(10, 1000))
    encoder = SegmentFileEncoder(rows.schema, compression="lz4", room_bytes=11_500)
    encoder.add_row_group(rows)
    with pytest.raises(OSError, match="out of bounds"):
        encoder.finish(footer(10))
