"""Columns without a value are not decoded: only those whose bytes leave no doubt, and rows come out the same."""

from typing import Any

import pyarrow as pa
import pytest

from filer.format.compression import Codec
from filer.format.plain.null_columns import columns_with_values
from filer.format.schema import MessageSchema
from filer.format.segment_file import (
    CheckedFile,
    Footer,
    SegmentFileEncoder,
    decode,
    decode_columns,
    decode_row_group,
    encode,
    read_end,
    unmark,
)

ALWAYS = ["_offset", "_timestamp", "key", "value"]
SCHEMA = MessageSchema.of().log
REF = {"uri": "braid:payload/x", "size": 1, "etag": "e", "sha256": None}


def table(count: int, base: int = 0, **given: dict[int, Any]) -> pa.Table:
    """Messages, some of which have what is given by their number."""
    columns: dict[str, list[Any]] = {
        "_offset": list(range(base, base + count)),
        "_timestamp": list(range(base, base + count)),
        "key": [None] * count,
        "value": [b"a value"] * count,
    }
    columns |= {field.name: [None] * count for field in SCHEMA if field.name not in columns}
    for name, values in given.items():
        for row, value in values.items():
            columns[name][row] = value
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def decoded_in_full(data: bytes) -> pa.Table:
    return unmark(CheckedFile(data)._file.read())


def footer(rows: int) -> Footer:
    return Footer(0, 0, rows, "b/1", 0, rows - 1)


@pytest.mark.parametrize("count", [1, 20, 1025, 45_000])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, [], id="none"),
        pytest.param({"headers": {0: [("n", b"")]}}, ["headers"], id="an empty header"),
        pytest.param({"headers": {0: []}}, ["headers"], id="headers, but none"),
        pytest.param({"headers": {0: [("", None)]}}, ["headers"], id="a header without a value"),
        pytest.param({"event_time": {0: 0}}, ["event_time"], id="an event time"),
        pytest.param({"_ref": {0: REF}, "value": {0: None}}, ["_ref"], id="a reference"),
        pytest.param({"event_time": {0: 1}, "headers": {0: [("n", b"v")]}}, ["event_time", "headers"], id="two"),
    ],
)
def test_what_a_message_has_is_read(count: int, given: dict[str, dict[int, Any]], expected: list[str]) -> None:
    for row in {0, count // 2, count - 1}:
        rows = table(count, **{name: dict.fromkeys([row], values[0]) for name, values in given.items()})
        data = bytes(encode(rows, footer(count)))
        metadata = CheckedFile(data).end.metadata
        assert columns_with_values(metadata, 0, data, 0) == [*ALWAYS, *expected]
        assert decode(data).equals(rows) and decode(data).equals(decoded_in_full(data))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_files_of_several_row_groups_as_roll_ups_write_them(compression: Codec) -> None:
    groups = [table(300), table(25_000, 300), table(10, 25_300, headers={3: [("n", b"v")]})]
    encoder = SegmentFileEncoder(SCHEMA, compression=compression)
    for group in groups:
        encoder.add_row_group(group)
    data = encoder.finish(footer(25_310)).to_pybytes()
    end = read_end(data, len(data))
    for number, group in enumerate(groups):
        start, stop = end.row_group_range(number)
        piece = data[start:stop]
        with_values = [*ALWAYS, "headers"] if number == 2 else ALWAYS
        assert columns_with_values(end.metadata, number, piece, start) == with_values
        assert decode_row_group(end, number, piece).equals(group)
        assert unmark(decode_columns(end, number, piece)).equals(group)
    assert decode(data).equals(pa.concat_tables(groups)) and decode(data).equals(decoded_in_full(data))


def test_of_a_file_without_checksums_all_is_decoded() -> None:
    encoder = SegmentFileEncoder(SCHEMA, compression="lz4", checks=False)
    encoder.add_row_group(table(5))
    data = encoder.finish(footer(5)).to_pybytes()
    assert columns_with_values(read_end(data, len(data)).metadata, 0, data, 0) == SCHEMA.names
    assert decode(data).equals(table(5))


def test_a_page_that_is_not_that_of_nulls_is_decoded() -> None:
    """Whatever a damaged, or a foreign, file says of such a column, its bytes decide."""
    data = bytearray(bytes(encode(table(5), footer(5))))
    metadata = CheckedFile(bytes(data)).end.metadata
    column = next(
        column
        for column in map(metadata.row_group(0).column, range(metadata.num_columns))
        if column.path_in_schema == "event_time"
    )
    for at in range(column.data_page_offset, column.data_page_offset + column.total_compressed_size):
        data[at] ^= 1
        assert columns_with_values(metadata, 0, data, 0) == [*ALWAYS, "event_time"]
        data[at] ^= 1
    assert columns_with_values(metadata, 0, data, 0) == ALWAYS
