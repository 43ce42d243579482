"""`read`: a part of a topic as a data frame, by Spark's own Parquet reader wherever that can reach the files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, crc32, lit, timestamp_micros
from pyspark.sql.types import StructType

from braidmq.async_client import DEFAULT_URL
from braidmq.models import SegmentFile
from braidmq.spark.columns import topic_schema
from braidmq.spark.errors import InvalidOption
from braidmq.spark.native_files import NativeFiles, can_read, native_files, read_files
from braidmq.spark.options import Place, ReadOptions, Source, checked_positions, checked_segments, checked_slots
from braidmq.spark.planning import client_of, listed_files, narrowed, shape_of, wanted_spans
from braidmq.spark.source import register
from braidmq.spark.spans import Span
from braidmq.times import microseconds
from filer.errors import InvalidMarker
from filer.positions import from_marker
from filer.slots import SLOTS

Where = str | datetime | Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is read, and where it is."""

    options: ReadOptions
    schema: StructType
    spans: Sequence[Span]
    files: Sequence[Sequence[SegmentFile]]


def read(
    spark: SparkSession,
    topic: str,
    *,
    url: str = DEFAULT_URL,
    start: Where = "earliest",
    end: Where = "latest",
    segments: Iterable[int] | None = None,
    slots: tuple[int, int] | None = None,
    headers: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
    native: bool | None = None,
) -> DataFrame:
    """The messages of a topic between two positions, as they stand now, whatever is published or rolled up later.

    `start` and `end` are `"earliest"`, `"latest"`, a marker, `{segment: offset}`, or a time: messages accepted at
    `start` or later, and before `end`. `segments` reads only those, `slots` only keys within `[start, stop)` (and none
    of the messages without a key). Files that have nothing of all this are not listed to Spark.

    Spark reads the files itself, where it has a connector for the store; the newest messages, which are in no file
    yet, come from the brokers. `native=False` has the data source read the files instead: where executors do not see
    the directory that the brokers store to. Files stay for the cluster's grace period (an hour): call `read` again for
    a frame that is used later. Raises `TopicNotFound`, `InvalidOption`, and `DataLoss` where retention has taken what
    `start` names, unless it is not to fail for that.
    """
    options = _options(Source(url, topic, dict(headers or {})), start, end, segments, slots)
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
        start="earliest" if isinstance(start, datetime) else _place(start, source.topic),
        end="latest" if isinstance(end, datetime) else _place(end, source.topic),
        since_us=microseconds(start) if isinstance(start, datetime) else None,
        until_us=microseconds(end) if isinstance(end, datetime) else None,
        segments=None if segments is None else checked_segments(segments),
        slots=None if slots is None else checked_slots(slots),
    )


def _place(where: str | Mapping[int, int], topic: str) -> Place:
    if isinstance(where, Mapping):
        return checked_positions(where)
    if not isinstance(where, str):
        raise InvalidOption(f"{where!r:.80} is no position: give earliest, latest, a marker, {{0: 100}}, or a datetime")
    if where == "earliest":
        return "earliest"
    if where == "latest":
        return "latest"
    try:
        return from_marker(topic, where)
    except InvalidMarker as error:
        raise InvalidOption(f"{error}; earliest, latest, {{0: 100}} and a datetime are positions too") from error


def _planned(options: ReadOptions) -> _Plan:
    with client_of(options.source) as client:
        shape = shape_of(client, options.source)
        spans = wanted_spans(client, shape, options)
        files = listed_files(client, options.source.topic, spans)
    timed = [
        narrowed(span, listed, options.since_us, options.until_us) for span, listed in zip(spans, files, strict=True)
    ]
    return _Plan(options, topic_schema(shape.state.config), timed, files)


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
    """What of each span is in no file."""
    tail = []
    for span, files in zip(plan.spans, plan.files, strict=True):
        start = max(span.start, files[-1].end_offset if files else 0)
        if start < span.stop:
            tail.append(Span(span.segment, start, span.stop))
    return tail


def _by_source(spark: SparkSession, plan: _Plan, spans: Sequence[Span]) -> DataFrame:
    """By the data source, which reads files by presigned addresses, and what is in none from the brokers."""
    register(spark)
    options, source = plan.options, plan.options.source
    reader = spark.read.format("braidmq").option("url", source.url).option("topic", source.topic)
    ranges = {str(span.segment): [span.start, span.stop] for span in spans if span.count}
    reader = reader.option("ranges", json.dumps(ranges))
    reader = reader.option("failOnDataLoss", str(options.fail_on_data_loss))
    for name, value in source.headers.items():
        reader = reader.option(f"header.{name}", value)
    if options.slots is not None:
        reader = reader.option("slots", f"{options.slots[0]}-{options.slots[1]}")
    frame = reader.load()
    return reduce(DataFrame.where, _time_conditions(options), frame)


def _conditions(options: ReadOptions) -> list[Column]:
    """What rows are left of files that have others as well."""
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
