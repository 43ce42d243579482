from datetime import UTC, datetime

import pyarrow as pa
import pytest

from filer.format.schema import TIMESTAMP
from pipeline.export.choices import PartitionBy
from pipeline.export.partitions import split_by_time


def table_of(*days: str | None) -> pa.Table:
    """The number of each row, and its times."""
    times = [None if day is None else datetime.fromisoformat(day).replace(tzinfo=UTC) for day in days]
    column = pa.array(times, TIMESTAMP)
    return pa.table({"n": range(len(days)), "_timestamp": column, "event_time": column})


def test_rows_go_to_the_folder_of_their_day_in_their_order():
    table = table_of("2013-01-01T23:59:59.999999", "2013-01-02", "2013-01-01", "1969-12-31T23:00", "2013-01-02T08:00")
    found = {folder: rows["n"].to_pylist() for folder, rows in split_by_time(table, "timestamp")}
    assert found == {"date=1969-12-31/": [3], "date=2013-01-01/": [0, 2], "date=2013-01-02/": [1, 4]}


def test_without_a_time_it_is_the_partition_of_null():
    found = {
        folder: rows["n"].to_pylist() for folder, rows in split_by_time(table_of(None, "2013-01-02"), "event_time")
    }
    assert found == {"date=__HIVE_DEFAULT_PARTITION__/": [0], "date=2013-01-02/": [1]}


def test_hours_are_folders_within_days() -> None:
    table = table_of("2013-01-01T23:59:59.999999", "2013-01-01T00:00", "1969-12-31T23:30", None)
    found = {folder: rows["n"].to_pylist() for folder, rows in split_by_time(table, "event_time", "hour")}
    assert found == {
        "date=2013-01-01/hour=23/": [0],
        "date=2013-01-01/hour=0/": [1],
        "date=1969-12-31/hour=23/": [2],
        "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__/": [3],
    }


@pytest.mark.parametrize("partition_by", ["timestamp", "event_time"])
def test_a_day_by_itself_is_not_copied(partition_by: PartitionBy):
    table = table_of("2013-01-01", "2013-01-01T10:00")
    ((_, rows),) = split_by_time(table, partition_by)
    assert rows is table


def test_without_partitions_there_is_one_folder():
    assert [folder for folder, _ in split_by_time(table_of("2013-01-01", "2014-01-01"), "none")] == [""]
