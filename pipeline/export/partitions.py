"""The folders of a table of Parquet files, by time, which readers show as columns."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.export.choices import PartitionBy, PartitionEvery

PARTITION_COLUMNS = ("date", "hour")
_HOUR_US = 3_600_000_000
_NO_TIME = np.iinfo(np.int64).min
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The name of the partition of null in Hive, and hence in Spark and DuckDB."""
_COLUMNS: dict[PartitionBy, str | None] = {"timestamp": "_timestamp", "event_time": "event_time", "none": None}
_PREFIX = "partition_"


def partition_columns(names: Sequence[str], partition_by: PartitionBy, every: PartitionEvery) -> tuple[str, str]:
    """Return the names of the folders of a day and of an hour, for a table of these columns: they hide no column.

    Readers take the value of a column from the folder rather than from the file. Some ignore case.
    """
    day, hour = PARTITION_COLUMNS
    while hidden_by((day, hour), names, partition_by, every):
        day, hour = _PREFIX + day, _PREFIX + hour
    return day, hour


def hidden_by(
    folders: tuple[str, str], names: Sequence[str], partition_by: PartitionBy, every: PartitionEvery
) -> list[str]:
    """Return the columns that the folders of a table hide."""
    if partition_by == "none":
        return []
    return [name for name in names if name.lower() in (folders if every == "hour" else folders[:1])]


def split_by_time(
    table: pa.Table,
    partition_by: PartitionBy,
    every: PartitionEvery = "day",
    columns: tuple[str, str] = PARTITION_COLUMNS,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each day or hour (UTC), in order, with its folder. Without partitions, all rows, no folder."""
    column = _COLUMNS[partition_by]
    if column is None:
        yield "", table
        return
    hours = _hours(table[column])
    parts = hours if every == "hour" else np.where(hours == _NO_TIME, _NO_TIME, hours // 24)
    for part in np.unique(parts):
        rows = table if (parts == part).all() else table.filter(pa.array(parts == part))
        yield _folder(int(part), every, columns), rows


def _hours(times: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the hour of each time, counted from 1970-01-01T00:00. Null becomes the lowest int64."""
    micros = np.asarray(pc.fill_null(times.cast(pa.int64()), _NO_TIME), dtype=np.int64)
    return np.where(micros == _NO_TIME, _NO_TIME, micros // _HOUR_US)


def _folder(part: int, every: PartitionEvery, columns: tuple[str, str]) -> str:
    day, hour = columns
    if part == _NO_TIME:
        return f"{day}={_NULL}/" if every == "day" else f"{day}={_NULL}/{hour}={_NULL}/"
    if every == "day":
        return f"{day}={np.datetime64(part, 'D')}/"
    return f"{day}={np.datetime64(part // 24, 'D')}/{hour}={part % 24}/"
