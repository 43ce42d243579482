"""Columns of nothing but nulls are told from all others by their bytes."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.bulk_load.null_columns import holds_only_nulls

ROWS = 50_000
PAIRS = pa.map_(pa.string(), pa.binary())
REF = pa.struct([("uri", pa.string()), ("size", pa.int64())])


def found(column: pa.Array, compression: str = "zstd") -> list[bool]:
    """Of each leaf of the column, in a file of a single row group."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": column}), sink, compression=compression, use_dictionary=False, write_statistics=False)
    data = sink.getvalue().to_pybytes()
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    leaves = map(group.column, range(group.num_columns))
    repeated = pa.types.is_map(column.type)
    return [holds_only_nulls(lambda a, b: data[a:b], leaf, len(column), repeated=repeated) for leaf in leaves]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), REF, PAIRS])
@pytest.mark.parametrize("rows", [1, 63, 64, 8191, ROWS])
def test_nulls_are_told_in_one_page_and_in_several(kind: pa.DataType, rows: int) -> None:
    assert all(found(pa.nulls(rows, kind)))


def test_what_is_compressed_otherwise_is_left_to_decoding() -> None:
    assert not any(found(pa.nulls(ROWS, REF), "snappy"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.int64(), 0), (pa.string(), ""), (REF, {"uri": None, "size": None}), (PAIRS, []), (PAIRS, [("", b"")])],
)
@pytest.mark.parametrize("rows", [1, 64, ROWS])
def test_a_single_value_is_seen_and_be_it_an_empty_one(kind: pa.DataType, value: Any, rows: int) -> None:
    nulls = pa.nulls(rows - 1, kind)
    for parts in ([nulls, pa.array([value], kind)], [pa.array([value], kind), nulls]):
        assert not all(found(pa.concat_arrays(parts)))
    assert not all(found(pa.array([value] * rows, kind)))


def test_another_number_of_rows_is_not_taken() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"x": pa.nulls(10, pa.int64())})
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    data = sink.getvalue().to_pybytes()
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    assert holds_only_nulls(lambda a, b: data[a:b], column, 10, repeated=False)
    assert not holds_only_nulls(lambda a, b: data[a:b], column, 11, repeated=False)
    assert not holds_only_nulls(lambda a, b: data[a:b], column, 9, repeated=False)
