"""Checks the column statistics of a bulk load's file, by which readers skip row groups.

Spark, DuckDB and Iceberg skip a row group if its statistics say that it has no matching row, and skip pages by their
index. If statistics are wrong, rows are missing from some query results and present in others.
"""

import pyarrow.parquet as pq

from filer.errors import LoadRefused


def check_column_statistics(metadata: pq.FileMetaData, base_offset: int, timestamp_us: int) -> None:
    """Raises `LoadRefused` unless statistics are those of consecutive offsets from `base_offset` and of one time.

    Other columns must have no statistics, and no column a page index or a Bloom filter: not all columns are decoded, so
    these could not be checked.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        last_offset = base_offset + group.num_rows - 1
        ranges = {"_offset": (base_offset, last_offset), "_timestamp": (timestamp_us, timestamp_us)}
        for column in map(group.column, range(group.num_columns)):
            _check_column(column, ranges.get(column.path_in_schema))
        base_offset = last_offset + 1


def _check_column(column: pq.ColumnChunkMetaData, known: tuple[int, int] | None) -> None:
    name, stated = column.path_in_schema, column.statistics
    if column.has_column_index or column.has_offset_index:
        raise LoadRefused(f"column {name} has a page index: write the file without one")
    if column.bloom_filter_offset is not None:
        raise LoadRefused(f"column {name} has a Bloom filter: write the file without one")
    if stated is None:
        return
    if known is None:
        raise LoadRefused(f"column {name} has statistics: only _offset and _timestamp may have them")
    if (stated.min_raw, stated.max_raw) != known or stated.null_count:
        nulls = stated.null_count or 0
        raise LoadRefused(
            f"the statistics of column {name} state {stated.min_raw} to {stated.max_raw} and {nulls} nulls for a row "
            f"group that has {known[0]} to {known[1]} and none"
        )
