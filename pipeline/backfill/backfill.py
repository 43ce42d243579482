"""`backfill`: bulk-load a table that Spark can read into a topic, in the order of event times if that is asked for.

`braidmq.spark.load` does the bulk load. If a run is killed at any line, another run with the same load id continues it.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braidmq import Client, CommittedLoad
from braidmq.bulk_load.loader import check_committed
from filer.clock import SystemClock
from filer.topic.topic_config import TopicConfig
from pipeline.errors import JobFailed
from pipeline.output import say
from pipeline.tasks import spark_failures, watched

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Source:
    """What Spark reads. `table_format` is `table` for a table of Spark's catalogue."""

    path: str
    table_format: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that make a message. Without `value`, the whole row is the value, as JSON."""

    key: str | None
    value: str | None
    event_time: str | None = None
    order_by_event_time: bool = False


def backfill(
    spark: "SparkSession",
    url: str,
    topic: str,
    source: Source,
    columns: Columns,
    *,
    segments: int | None = None,
    load: str | None = None,
) -> CommittedLoad:
    """Bulk-load the rows as messages. Raises any `BraidError`, and `JobFailed` if the table cannot be read."""
    from braidmq.spark import load as load_frame

    with Client(url) as client:
        config = TopicConfig.model_validate(client.topic(topic).config)
        known = None if load is None else client.committed_load(topic, load)
    messages = messages_of(spark, source, columns, config)
    name = load or SystemClock().ulid()
    with watched(spark):
        if known is not None:
            check_committed(known, messages.count())
            say(f"load {load} has been committed before")
            return known
        if messages.isEmpty():
            raise JobFailed(f"{source.path} has no rows: there is nothing to load")
        say(f"load {name} (continue it with --load {name})")
        by_time = columns.order_by_event_time
        return load_frame(messages, topic, url=url, load=name, segments=segments, by_time=by_time, progress=say)


def messages_of(spark: "SparkSession", source: Source, columns: Columns, config: TopicConfig) -> "DataFrame":
    """The table as messages: `key`, `value` and `event_time`. Raises `JobFailed`."""
    with _failures_of(source):
        if source.table_format == "table":
            table = spark.read.table(source.path)
        else:
            table = spark.read.format(source.table_format).options(**source.options).load(source.path)
    for name in (columns.key, columns.value, columns.event_time):
        if name is not None and name not in table.columns:
            raise JobFailed(f"{source.path} has no column {name!r}; it has {', '.join(table.columns)}")
    with _failures_of(source):
        return table.select(*_message_columns(table, columns, config))


@contextlib.contextmanager
def _failures_of(source: Source) -> Iterator[None]:
    try:
        with spark_failures():
            yield
    except JobFailed as failure:
        raise JobFailed(f"{source.path}: {failure}") from failure


def _message_columns(table: "DataFrame", columns: Columns, config: TopicConfig) -> list["Column"]:
    from pyspark.sql import functions as f

    types = dict(table.dtypes)
    key = f.lit(None).cast(config.key_type)
    if columns.key is not None:
        key = _as_type(_column(table, columns.key), types[columns.key], config.key_type)
    value = f.to_json(f.struct(*(_column(table, name) for name in table.columns)), {"ignoreNullFields": "false"})
    kind, wanted = "string", "binary" if config.value_type == "binary" else "string"
    if columns.value is not None:
        value, kind = _column(table, columns.value), types[columns.value]
    time = f.lit(None) if columns.event_time is None else _column(table, columns.event_time)
    value = _as_type(value, kind, wanted)
    return [key.alias("key"), value.alias("value"), time.cast("timestamp").alias("event_time")]


def _column(table: "DataFrame", name: str) -> "Column":
    """The column of that name. Without the quotes, a dot in it would mean a field of a struct."""
    return table["`{}`".format(name.replace("`", "``"))]


def _as_type(column: "Column", kind: str, wanted: str) -> "Column":
    """Text and bytes unchanged; numbers and times as text, also if the topic takes bytes."""
    return column if kind == wanted else column.cast("string").cast(wanted)
