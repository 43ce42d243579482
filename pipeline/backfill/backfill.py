"""`backfill`: bulk-load a table that Spark can read into a topic, in the order of event times if that is asked for.

`braidmq.spark.load` does the bulk load. If a run is killed at any line, another run with the same load id continues it.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from braidmq import Client, CommittedLoad
from braidmq.bulk_load.loader import check_committed
from braidmq.transport.patience import patience
from filer.clock import SystemClock
from filer.format.schema import MessageSchema
from pipeline.backfill.arrow_types import noted_schema, unseen
from pipeline.backfill.choices import Columns, Source
from pipeline.errors import JobFailed
from pipeline.output import say
from pipeline.preview import MOST_SHOWN, Preview, Times
from pipeline.tasks import spark_failures, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ILLEGAL_TYPE = "PARQUET_TYPE_ILLEGAL"
_OTHERWISE = "cast the column to another type, or publish the file with mq publish --file"


def backfill(
    spark: "SparkSession",
    url: str,
    topic: str,
    source: Source,
    columns: Columns,
    *,
    segments: int | None = None,
    load: str | None = None,
    timeout_seconds: float | None = None,
    confirm: Callable[[str], bool] = lambda _: True,
) -> CommittedLoad:
    """Bulk-load the rows as messages. Raises any `BraidError`, and `JobFailed` if the table cannot be read.

    A load cannot be undone. So `confirm` is asked before it begins if the event times are unlikely. `timeout_seconds`
    is how long to go on trying when no broker answers.
    """
    from braidmq.spark import load as load_frame

    patient = patience(timeout_seconds)
    with Client(url, **patient) as client:
        schema = _schema_of(client, topic)
        known = None if load is None else client.committed_load(topic, load)
    rows = rows_of(spark, source, columns)
    messages = messages_of(rows, columns, schema)
    name = load or SystemClock().ulid()
    with watched(spark):
        if known is not None:
            check_committed(known, rows.count())
            say(f"load {load} has been committed before")
            return known
        if rows.isEmpty():
            raise JobFailed(f"{source.path} has no rows: there is nothing to load")
        warning = event_times(rows, columns).unlikely(SystemClock().now_us())
    # Not watched: lines about the progress would hide the question.
    if warning is not None and not confirm(warning):
        raise JobFailed(f"nothing was loaded: {warning}")
    say(f"load {name} (continue it with --load {name})")
    with watched(spark):
        by_time = columns.order_by_event_time
        return load_frame(
            messages,
            topic,
            url=url,
            load=name,
            segments=segments,
            by_time=by_time,
            retry=patient.get("retry"),
            progress=say,
        )


def preview(
    spark: "SparkSession",
    url: str,
    topic: str,
    source: Source,
    columns: Columns,
    *,
    timeout_seconds: float | None = None,
) -> Preview:
    """Return what `backfill` would load. Converts every row, so that it finds refused values. Errors as there."""
    from pyspark.sql import functions as f

    with Client(url, **patience(timeout_seconds)) as client:
        schema = _schema_of(client, topic)
    rows = rows_of(spark, source, columns)
    size_bytes, time = f.sum(f.octet_length("value")), f.col("event_time")
    with watched(spark):
        messages = messages_of(rows, columns, schema)
        found = messages.agg(f.count("*"), size_bytes, f.unix_micros(f.min(time)), f.unix_micros(f.max(time))).head()
        assert found is not None
        first = messages_of(rows.limit(MOST_SHOWN), columns, schema).drop("headers").toArrow().to_pylist()
    return Preview(found[0], found[1] or 0, Times(found[2], found[3]), first)


def event_times(rows: "DataFrame", columns: Columns) -> Times:
    """Return the earliest and the latest event time of the rows."""
    from pyspark.sql import functions as f

    from braidmq.spark import to_messages

    if columns.event_time is None:
        return Times(None, None)
    name = columns.event_time
    alone = rows.select("`{}`".format(name.replace("`", "``")))
    times = to_messages(alone, event_time=name, event_time_unit=columns.event_time_unit)
    found = times.agg(f.unix_micros(f.min("event_time")), f.unix_micros(f.max("event_time"))).head()
    assert found is not None
    return Times(found[0], found[1])


def rows_of(spark: "SparkSession", source: Source, columns: Columns) -> "DataFrame":
    """Return the table's rows. Raises `JobFailed` if it cannot be read, lacks a column, or Spark mistakes a type."""
    with _failures_of(source):
        if source.table_format == "table":
            table = spark.read.table(source.path)
        else:
            table = spark.read.format(source.table_format).options(**source.options).load(source.path)
    for name in (columns.key, columns.value, columns.event_time):
        if name is not None and name not in table.columns:
            raise JobFailed(f"{source.path} has no column {name!r}; it has {', '.join(table.columns)}")
    if source.table_format == "parquet":
        with _failures_of(source):
            schema = noted_schema(spark, table)
        used = schema.names if columns.value is None else [columns.key, columns.value, columns.event_time]
        for path, kind in unseen(pa.schema([field for field in schema if field.name in used])):
            raise JobFailed(
                f"{source.path}: column {path!r} is of Arrow's type {kind}, of which Spark sees only the numbers: "
                f"{_OTHERWISE}"
            )
    return table


def messages_of(rows: "DataFrame", columns: Columns, schema: MessageSchema) -> "DataFrame":
    """Return the rows as messages, with keys and values of the topic's types. Raises `InvalidOption`."""
    from pyspark.sql import functions as f

    from braidmq.spark import to_messages

    messages = to_messages(
        rows,
        key=columns.key,
        value=columns.value,
        event_time=columns.event_time,
        event_time_unit=columns.event_time_unit,
        non_finite=columns.non_finite,
    )
    key, value = map(str, schema.published.types[:2])  # Spark's names are the same
    # In a topic of JSON each value is JSON, and no header says so.
    headers = f.lit(None).cast("map<string,binary>") if schema.is_json else f.col("headers")
    return messages.select(f.col("key").cast(key), f.col("value").cast(value), headers.alias("headers"), "event_time")


def _schema_of(client: Client, topic: str) -> MessageSchema:
    config = client.topic(topic).config
    return MessageSchema.of(config["key_type"], config["value_type"])


@contextlib.contextmanager
def _failures_of(source: Source) -> Iterator[None]:
    try:
        with spark_failures():
            yield
    except JobFailed as failure:
        # Pandas writes times in nanoseconds, for example.
        hint = f"; Spark does not read this type: {_OTHERWISE}" if _ILLEGAL_TYPE in str(failure) else ""
        raise JobFailed(f"{source.path}: {failure}{hint}") from failure
