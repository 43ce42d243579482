"""What offline readers read of a topic in a local directory: only its Parquet files."""

from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from filer import keys
from filer.keys import FileName
from filer.segment.live_files import live_names
from tests.cluster.checker.history import Found

QUERY = """
    SELECT segment, _offset, key, value FROM read_parquet(?, hive_partitioning = true) ORDER BY segment, _offset
"""


def read_bare_glob(root: Path, topic: str) -> list[Found]:
    """Every row that DuckDB finds in any file, in order. Correct as long as nothing was rolled up."""
    pattern = root / keys.segments_folder(topic) / "**" / "*.parquet"
    with duckdb.connect() as database:
        rows = database.execute(QUERY, [str(pattern)]).fetchall()
    return [Found(*row) for row in rows]


def read_files(root: Path, topic: str) -> list[Found]:
    """Every message by the names-only rule, in order. Decodes every file there is: a half-written one raises."""
    found: list[Found] = []
    folders = (root / keys.segments_folder(topic)).glob("segment=*")
    for folder in sorted(folders, key=_segment_of):
        found += _read_segment(folder)
    return found


def _segment_of(folder: Path) -> int:
    return int(folder.name.partition("=")[2])


def _read_segment(folder: Path) -> list[Found]:
    tables = {}
    for path in folder.iterdir():
        name = FileName.parse(path.name)
        assert name is not None, f"{path} is no segment file"
        with pq.ParquetFile(path) as file:
            tables[name] = file.read(columns=["_offset", "key", "value"])
    live = live_names(tables)
    found: list[Found] = []
    for index, each in enumerate(live):
        stop = live[index + 1].start if index + 1 < len(live) else None
        for row in tables[each.name].to_pylist():
            if row["_offset"] >= each.start and (stop is None or row["_offset"] < stop):
                found.append(Found(_segment_of(folder), row["_offset"], row["key"], row["value"]))
    return found
