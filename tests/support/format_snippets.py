"""The snippets of docs/file-format.md, and what `mq files sql` prints, as readers of a topic's folder.

Each reads in two steps: list, then read.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from braidmq import SegmentFile
from mq.cli.reading.queries.engines import QUERIES, Engine
from mq.cli.reading.queries.stored_topic import stored_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = (Path(__file__).parents[2] / "docs" / "file-format.md").read_text()
_PLACE = "braid-data/topics/demo"
Row = tuple[int, int, bytes]
"""Segment, offset and value; readers give them in the order of the first two."""


def snippet(name: str, topic: Path) -> str:
    """The code block with a name, for the topic in this folder."""
    match = re.search(rf"<!-- snippet: {name} -->\n```\w+\n(.*?)```", DOCUMENT, re.DOTALL)
    assert match is not None, name
    assert _PLACE in match[1] or "-read" in name
    return match[1].replace(_PLACE, str(topic))


class DuckDbSnippets:
    """The two statements, in one connection."""

    def __init__(self, topic: Path) -> None:
        self._topic = topic
        self._connection = duckdb.connect()

    def list_files(self) -> None:
        self._connection.execute(snippet("duckdb-list", self._topic))

    def read(self) -> list[Row]:
        return rows_of(self._connection.sql(snippet("duckdb-read", self._topic)).to_arrow_table())


class PythonSnippets:
    """The Python snippets, one after the other in one namespace."""

    def __init__(self, topic: Path) -> None:
        self._topic = topic
        self.names: dict[str, Any] = {}

    def list_files(self) -> None:
        exec(snippet("python-list", self._topic), self.names)

    def read(self) -> list[Row]:
        exec(snippet("python-read", self._topic), self.names)
        return rows_of(self.names["messages"])


class DuckDbQuery:
    """What `mq files sql` prints, in one connection."""

    def __init__(self, topic: Path) -> None:
        self._text = printed_query("duckdb", topic)
        self._connection = duckdb.connect()

    def list_files(self) -> None:
        self._connection.execute(self._text)

    def read(self) -> list[Row]:
        return rows_of(self._connection.sql("SELECT * FROM demo ORDER BY segment, _offset").to_arrow_table())


class PolarsQuery:
    """What `mq files sql --engine polars` prints."""

    def __init__(self, topic: Path) -> None:
        self._text = printed_query("polars", topic)
        self._names: dict[str, Any] = {}

    def list_files(self) -> None:
        exec(self._text, self._names)

    def read(self) -> list[Row]:
        return rows_of(self._names["messages"].sort("segment", "_offset").collect().to_arrow())


class SparkQuery:
    """What `mq files sql --engine spark` prints, in the session that there is."""

    def __init__(self, topic: Path, spark: "SparkSession") -> None:
        self._text = printed_query("spark", topic)
        self._spark = spark

    def list_files(self) -> None:
        exec(self._text, {})

    def read(self) -> list[Row]:
        return rows_of(self._spark.sql("SELECT * FROM demo ORDER BY segment, _offset").toArrow())


def printed_query(engine: Engine, topic: Path) -> str:
    """The query for an engine, of the topic in this folder."""
    file = next(topic.glob("segments/*/*.parquet"))
    told = SegmentFile(uri=file.as_uri(), segment=0, base_offset=0, end_offset=1, count=1, bytes=1)
    return QUERIES[engine](stored_topic(topic.name, told, key_type="binary", value_type="binary"))


class SparkSnippets(PythonSnippets):
    """Listed by Python, read by Spark."""

    def __init__(self, topic: Path, spark: "SparkSession") -> None:
        super().__init__(topic)
        self.names["spark"] = spark

    def read(self) -> list[Row]:
        exec(snippet("spark-read", self._topic), self.names)
        return sorted(rows_of(self.names["messages"].select("segment", "_offset", "value").toArrow()))


def read_independently(topic: Path) -> list[Row]:
    """The complete reader, which lists and reads in one step."""
    names: dict[str, Any] = {}
    exec(snippet("independent-reader", topic), names)
    return [
        (segment, *row)
        for segment, table in sorted(names["messages"].items())
        for row in zip(table["_offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    ]


def check_digests(topic: Path) -> dict[str, tuple[int, int]]:
    """The numbers of checked and of unchecked files by segment; raises ValueError as the snippet does."""
    names: dict[str, Any] = {}
    exec(snippet("check-digests", topic), names)
    counts: dict[str, tuple[int, int]] = names["counts"]
    return counts


def rows_of(table: pa.Table) -> list[Row]:
    """The three columns as tuples, in the table's order."""
    columns = (table[name].to_pylist() for name in ("segment", "_offset", "value"))
    return [(segment, offset, bytes(value)) for segment, offset, value in zip(*columns, strict=True)]
