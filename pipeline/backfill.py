"""`backfill`: a table that Spark can read into a topic as a load, in the order of its event times if asked.

Each reserved segment is one task: the rows of its slots, in an order that is the same however often they are read. So
the files of a load come out the same whenever it is run, and a run that was killed at any line is gone on with under
the load's name: what is there is found to be so, and a commit that is repeated gives the first answer.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from braidmq import Client
from filer.load_files import load_files
from filer.slots import SLOTS
from filer.topic_config import TopicConfig
from pipeline.errors import JobFailed
from pipeline.load_calls import LoadCalls, Reservation, StoredFile
from pipeline.output import counted, say
from pipeline.session import quiet_about_pandas
from pipeline.tasks import watched

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_DEFAULT_SEGMENTS = 16
_FILES = "segment long, base_offset long, count long, size_bytes long"
_FILES_SCHEMA = pa.schema(
    [("segment", pa.int64()), ("base_offset", pa.int64()), ("count", pa.int64()), ("size_bytes", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class Source:
    """What to read, as Spark reads it; `table_format` is `table` for a table of Spark's catalogue."""

    path: str
    table_format: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns make a message; without `value` the whole row is the value, as JSON."""

    key: str | None
    value: str | None
    event_time: str | None = None
    order_by_event_time: bool = False


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a load came to."""

    load: str
    messages: int
    segments: int
    files: int


def backfill(
    spark: "SparkSession",
    url: str,
    topic: str,
    source: Source,
    columns: Columns,
    *,
    segments: int | None = None,
    load: str | None = None,
) -> Backfilled:
    """Load the table's rows as messages. Raises any `BraidError`, `JobFailed` for a table that cannot be read."""
    with Client(url) as client:
        found = client.topic(topic)
        calls = LoadCalls(client.urls, topic)
    config = TopicConfig.model_validate(found.config)
    if load is not None and (answer := calls.committed(load)) is not None:
        say(f"load {load} has been committed before")
        return _backfilled(answer, files=0)
    opened = sum(segment.state == "open" for segment in found.segments)
    reservation = calls.reserve(config, segments or _segments(spark, opened), load)
    parts = counted(len(reservation.segments), "segment")
    say(f"load {reservation.load} of {parts} (--load {reservation.load} goes on with it)")
    files = write_files(spark, calls, reservation, messages_of(spark, source, columns, config), columns)
    if not files:
        calls.abandon(reservation.load)
        raise JobFailed(f"{source.path} has no rows: nothing is loaded")
    say(f"{counted(len(files), 'file')} written; the brokers look through what is there")
    return _backfilled(calls.commit(reservation.load, files), files=len(files))


def _segments(spark: "SparkSession", opened: int) -> int:
    """As many as tasks run at a time, and as are open: all processors are at work, and no task is too large."""
    return min(max(opened, spark.sparkContext.defaultParallelism), MOST_DEFAULT_SEGMENTS)


def _backfilled(answer: Mapping[str, Any], *, files: int) -> Backfilled:
    return Backfilled(answer["load"], answer["messages"], len(answer["segments"]), files)


def messages_of(spark: "SparkSession", source: Source, columns: Columns, config: TopicConfig) -> "DataFrame":
    """The table as messages: `key`, `value` and `event_time`. Raises `JobFailed`."""
    from pyspark.errors import PySparkException

    try:
        if source.table_format == "table":
            table = spark.read.table(source.path)
        else:
            table = spark.read.format(source.table_format).options(**source.options).load(source.path)
        for name in (columns.key, columns.value, columns.event_time):
            if name is not None and name not in table.columns:
                raise JobFailed(f"{source.path} has no column {name!r}; it has {', '.join(table.columns)}")
        return table.select(*_message_columns(table, columns, config))
    except PySparkException as error:
        raise JobFailed(f"{source.path}: {str(error).splitlines()[0]}") from error


def _message_columns(table: "DataFrame", columns: Columns, config: TopicConfig) -> list["Column"]:
    from pyspark.sql import functions as f

    types = dict(table.dtypes)
    key = f.lit(None).cast(config.key_type)
    if columns.key is not None:
        key = _as_type(table[columns.key], types[columns.key], config.key_type)
    value = f.to_json(f.struct(*(table[name] for name in table.columns)), {"ignoreNullFields": "false"})
    kind, wanted = "string", "binary" if config.value_type == "binary" else "string"
    if columns.value is not None:
        value, kind = table[columns.value], types[columns.value]
    time = f.lit(None) if columns.event_time is None else table[columns.event_time]
    value = _as_type(value, kind, wanted)
    return [key.alias("key"), value.alias("value"), time.cast("timestamp").alias("event_time")]


def _as_type(column: "Column", kind: str, wanted: str) -> "Column":
    """Text or bytes as they are; numbers and times as people write them, also where bytes are wanted."""
    return column if kind == wanted else column.cast("string").cast(wanted)


def write_files(
    spark: "SparkSession", calls: LoadCalls, reservation: Reservation, messages: "DataFrame", columns: Columns
) -> list[StoredFile]:
    """Write the messages as the files of the reserved segments, a task each; the files in the order of offsets.

    A message without a key goes where its value says: to the same segment however often the table is read.
    """
    from pyspark.sql import functions as f

    spread_by = f.coalesce(*(f.col(name).cast("binary") for name in ("key", "value")), f.lit("").cast("binary"))
    slot = (f.crc32(spread_by) % SLOTS).cast("int")
    starts = [segment.start_slot for segment in reservation.segments]
    order = ["event_time"] if columns.order_by_event_time else []
    cut = (
        messages.withColumn("slot", slot)
        .withColumn("part", part_of(f.col("slot"), starts))
        .repartitionById(len(starts), f.col("part"))
        .sortWithinPartitions("part", "slot", *order, "key", "event_time", "value")
    )
    with watched(spark, len(starts)), warnings.catch_warnings():
        quiet_about_pandas()
        rows = (
            cut.select("part", "key", "value", "event_time")
            .mapInArrow(partial(_write_parts, calls, reservation), _FILES)
            .collect()
        )
    return sorted((StoredFile(*row) for row in rows), key=lambda file: (file.segment, file.base_offset))


def part_of(slot: "Column", starts: Sequence[int], first: int = 0) -> "Column":
    """The place in `starts` of the last one that is not above the slot, found by halving."""
    from pyspark.sql import functions as f

    if len(starts) == 1:
        return f.lit(first)
    middle = len(starts) // 2
    left, right = part_of(slot, starts[:middle], first), part_of(slot, starts[middle:], first + middle)
    return f.when(slot < starts[middle], left).otherwise(right)


def _write_parts(
    calls: LoadCalls, reservation: Reservation, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs as a task: write the messages of a part as files of its segment; what was written."""
    for part, rows in groupby(in_one_part(batches), key=lambda each: each[0]):
        segment = reservation.segments[part]
        for file in load_files((batch for _, batch in rows), segment):
            stored = calls.put(reservation.load, file)
            columns = [[stored.segment], [stored.base_offset], [stored.count], [stored.size_bytes]]
            arrays = [pa.array(column, pa.int64()) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=_FILES_SCHEMA)


def in_one_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches cut where the column `part` changes, without that column."""
    for batch in batches:
        parts = np.asarray(batch["part"])
        changes = np.flatnonzero(np.diff(parts)) + 1
        bounds = [0, *changes.tolist(), batch.num_rows] if batch.num_rows else []
        for start, stop in pairwise(bounds):
            yield int(parts[start]), batch.slice(start, stop - start).drop_columns(["part"])
