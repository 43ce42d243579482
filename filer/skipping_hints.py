"""What a load's file says of its columns for readers that skip row groups by it: whether that is so.

Spark, DuckDB and Iceberg leave out a row group whose statistics say that it has nothing they look for, and pages by
their index: where those lie, rows are missing from some answers and not from others.
"""

import pyarrow.parquet as pq

from filer.errors import LoadRefused


def check_hints(metadata: pq.FileMetaData, base_offset: int, timestamp_us: int) -> None:
    """Raises `LoadRefused` where statistics are not those of consecutive offsets from `base_offset` and of one time.

    Of other columns there may be none, nor a page index or a Bloom filter, since those columns are not all decoded.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        last_offset = base_offset + group.num_rows - 1
        ranges = {"_offset": (base_offset, last_offset), "_timestamp": (timestamp_us, timestamp_us)}
        for column in map(group.column, range(group.num_columns)):
            _check_column(column, ranges.get(column.path_in_schema))
        base_offset = last_offset + 1


def _check_column(column: pq.ColumnChunkMetaData, known: tuple[int, int] | None) -> None:
    name, said = column.path_in_schema, column.statistics
    if column.has_column_index or column.has_offset_index:
        raise LoadRefused(f"column {name} has a page index: write the file without")
    if column.bloom_filter_offset is not None:
        raise LoadRefused(f"column {name} has a Bloom filter: write the file without")
    if said is None:
        return
    if known is None:
        raise LoadRefused(f"column {name} has statistics: only _offset and _timestamp have some")
    if (said.min_raw, said.max_raw) != known or said.null_count:
        raise LoadRefused(
            f"the statistics of column {name} say that a row group has {said.min_raw} to {said.max_raw} and "
            f"{said.null_count or 0} nulls, and it has {known[0]} to {known[1]} and none"
        )
