"""`read`: a part of a topic as a data frame, by Spark's own Parquet reader if that can reach the files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, crc32, lit, timestamp_micros
from pyspark.sql.types import StructType

from braidmq.defaults import default_url
from braidmq.models import SegmentFile
from braidmq.spark.batch.native_files import NativeFiles, can_read, native_files, read_files
from braidmq.spark.columns import schema_of
from braidmq.spark.connection import fetch_snapshot, open_client
from braidmq.spark.errors import InvalidOption
from braidmq.spark.options import (
    PositionOption,
    ReadOptions,
    Source,
    checked_credentials,
    checked_positions,
    checked_segments,
    checked_slots,
)
from braidmq.spark.partitions.planning import list_files, narrowed_by_time, spans_to_read
from braidmq.spark.source import register
from braidmq.spark.spans import Span
from braidmq.times import microseconds
from filer.errors import InvalidMarker
from filer.slots import SLOTS
from filer.topic.positions import from_marker

Where = str | datetime | Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The messages to read, and where they are."""

    options: ReadOptions
    schema: StructType
    spans: Sequence[Span]
    files: Sequence[Sequence[SegmentFile]]


def read(
    spark: SparkSession,
    topic: str,
    *,
    url: str | None = None,
    start: Where = "earliest",
    end: Where = "latest",
    segments: Iterable[int] | None = None,
    slots: tuple[int, int] | None = None,
    headers: Mapping[str, str] | None = None,
    credentials: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
    native: bool | None = None,
) -> DataFrame:
    """Return the messages of a topic between two positions. Both are fixed now, whatever is published later.

    `start` and `end` are `"earliest"`, `"latest"`, a marker, `{segment: offset}`, or a time. Times select messages
    accepted at `start` or later and before `end`. `segments` limits the read to these segments, `slots` to keys of the
    slots `[start, stop)`, which excludes messages without a key. Files without any such message are not given to Spark.

    Spark reads the files itself if it has a connector for the store. The newest messages, which are in no file yet,
    come from the brokers. With `native=False` the data source reads the files instead: use it if executors do not see
    the brokers' directory. Files stay for the cluster's grace period (an hour); to use a frame later, call `read`
    again. Raises `TopicNotFound`, `InvalidOption`, and `DataLoss` if retention has removed messages after `start` and
    `fail_on_data_loss` is set.
    """
    source = Source(url or default_url(), topic, dict(headers or {}), checked_credentials(credentials or {}))
    options = _options(source, start, end, segments, slots)
    options = replace(options, fail_on_data_loss=fail_on_data_loss)
    plan = _planned(options)
    found = native_files(plan.spans, plan.files)
    if native is None:
        native = found is not None and can_read(spark, found)
    if not native or found is None:
        return _by_source(spark, plan, plan.spans)
    return _by_parquet(spark, plan, found)


def _options(
    source: Source, start: Where, end: Where, segments: Iterable[int] | None, slots: tuple[int, int] | None
) -> ReadOptions:
    return ReadOptions(
        source,
        start="earliest" if isinstance(start, datetime) else _position(start, source.topic),
        end="latest" if isinstance(end, datetime) else _position(end, source.topic),
        since_us=microseconds(start) if isinstance(start, datetime) else None,
        until_us=microseconds(end) if isinstance(end, datetime) else None,
        segments=None if segments is None else checked_segments(segments),
        slots=None if slots is None else checked_slots(slots),
    )


def _position(where: str | Mapping[int, int], topic: str) -> PositionOption:
    if isinstance(where, Mapping):
        return checked_positions(where)
    if not isinstance(where, str):
        raise InvalidOption(
            f"{where!r:.80} is not a position: give earliest, latest, a marker, {{0: 100}}, or a datetime"
        )
    if where == "earliest":
        return "earliest"
    if where == "latest":
        return "latest"
    try:
        return from_marker(topic, where)
    except InvalidMarker as error:
        raise InvalidOption(f"{error}; earliest, latest, {{0: 100}} and a datetime are positions too") from error


def _planned(options: ReadOptions) -> _Plan:
    with open_client(options.source) as client:
        snapshot = fetch_snapshot(client, options.source)
        spans = spans_to_read(client, snapshot, options)
        files = list_files(client, options.source.topic, spans)
    narrowed = [
        narrowed_by_time(span, listed, options.since_us, options.until_us)
        for span, listed in zip(spans, files, strict=True)
    ]
    return _Plan(options, schema_of(snapshot), narrowed, files)


def _by_parquet(spark: SparkSession, plan: _Plan, found: NativeFiles) -> DataFrame:
    frames = read_files(spark, found, plan.schema)
    tail = _tail(plan)
    if tail:
        frames.append(_by_source(spark, plan, tail))
    if not frames:
        return spark.createDataFrame([], plan.schema)
    every = reduce(DataFrame.unionAll, frames)
    return reduce(DataFrame.where, _conditions(plan.options), every)


def _tail(plan: _Plan) -> list[Span]:
    """The part of each span that is in no file."""
    tail = []
    for span, files in zip(plan.spans, plan.files, strict=True):
        start = max(span.start, files[-1].end_offset if files else 0)
        if start < span.stop:
            tail.append(Span(span.segment, start, span.stop))
    return tail


def _by_source(spark: SparkSession, plan: _Plan, spans: Sequence[Span]) -> DataFrame:
    """Read through the data source, which reads files at presigned addresses and the rest from brokers."""
    register(spark)
    options, source = plan.options, plan.options.source
    reader = spark.read.format("braidmq").option("url", source.url).option("topic", source.topic)
    ranges = {str(span.segment): [span.start, span.stop] for span in spans if span.count}
    reader = reader.option("ranges", json.dumps(ranges))
    reader = reader.option("failOnDataLoss", str(options.fail_on_data_loss))
    for name, value in source.headers.items():
        reader = reader.option(f"header.{name}", value)
    for name, value in source.credentials.items():
        reader = reader.option(name, value)
    if options.slots is not None:
        reader = reader.option("slots", f"{options.slots[0]}-{options.slots[1]}")
    frame = reader.load()
    return reduce(DataFrame.where, _time_conditions(options), frame)


def _conditions(options: ReadOptions) -> list[Column]:
    """The conditions for rows of files that have other rows as well."""
    conditions = _time_conditions(options)
    if options.slots is not None:
        slot = crc32(col("key").cast("binary")).bitwiseAND(SLOTS - 1)
        conditions.append(slot >= options.slots[0])
        conditions.append(slot < options.slots[1])
    return conditions


def _time_conditions(options: ReadOptions) -> list[Column]:
    conditions = []
    if options.since_us is not None:
        conditions.append(col("_timestamp") >= timestamp_micros(lit(options.since_us)))
    if options.until_us is not None:
        conditions.append(col("_timestamp") < timestamp_micros(lit(options.until_us)))
    return conditions
