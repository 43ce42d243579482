"""From what is asked for to the partitions that tasks read: asks the brokers where things are."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import httpx
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from braidmq.client import Client
from braidmq.errors import InvalidRequest, PositionExpired
from braidmq.file_ref import FileRef
from braidmq.models import SegmentFile
from braidmq.retry import Retry
from braidmq.spark.columns import RowFilter, spark_batch
from braidmq.spark.data_loss import is_broken, mended
from braidmq.spark.errors import DataLoss, InvalidOption
from braidmq.spark.options import Place, ReadOptions, Source
from braidmq.spark.shape import Shape
from braidmq.spark.span_reader import SpanReader
from braidmq.spark.spans import Span, in_parts, of_segments, spans_between
from braidmq.times import microseconds
from braidmq.tls import tls_context
from filer.errors import InvalidMarker
from filer.positions import Positions, check_positions

_SEGMENTS_AT_ONCE = 8
_STORE_TIMEOUT_SECONDS = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class SpanPartition(InputPartition):
    """What one task reads, and the files that held it when it was planned."""

    span: Span
    files: tuple[FileRef, ...]


def client_of(source: Source, retry: Retry | None = None) -> Client:
    """A client of the cluster; close it."""
    return Client(source.url, headers=source.headers, retry=retry or Retry())


def shape_of(client: Client, source: Source) -> Shape:
    """The topic as it stands now; raises `TopicNotFound`."""
    return Shape.of(client.topic(source.topic))


def wanted_spans(client: Client, shape: Shape, options: ReadOptions) -> list[Span]:
    """What a batch reads, by segment, but for the times that it is bound to."""
    if options.ranges is not None:
        return list(options.ranges)
    start, end = (place_of(client, shape, place, options) for place in (options.start, options.end))
    spans = spans_between(shape, start, end)
    if options.slots is not None:
        first, stop = options.slots
        within = [each.id for each in shape.state.segments if each.start_slot < stop and first < each.stop_slot]
        spans = of_segments(spans, within)
    return spans if options.segments is None else of_segments(spans, _known(shape, options.segments))


def _known(shape: Shape, segments: Sequence[int]) -> Sequence[int]:
    """The segments, if each is or was one of the topic; raises `InvalidOption`, since a misspelt id would read nothing.

    So is one refused that has just been opened, and that this broker has not heard of: its messages would be missing.
    """
    last = shape.state.next_segment - 1
    for segment in segments:
        if segment > last:
            raise InvalidOption(f"topic {shape.state.topic!r} has no segment {segment}: the newest one is {last}")
    return segments


def place_of(client: Client, shape: Shape, place: Place, options: ReadOptions) -> Positions:
    """The positions that a user names; raises `InvalidOption` for what is none, `DataLoss` for what has expired."""
    if place == "earliest":
        return shape.earliest()
    if place == "latest":
        return shape.latest()
    if not is_broken(shape, place):
        try:
            check_positions(shape.state, place)
        except InvalidMarker as error:
            # What a marker lacks was left out of an object by whoever wrote it, as a rule.
            raise InvalidOption(f"{error}; an object has offsets of segments that take all keys together") from error
        return place
    return sound_positions(client, shape, place, fail_on_data_loss=options.fail_on_data_loss)[0]


def sound_positions(
    client: Client, shape: Shape, positions: Positions, *, fail_on_data_loss: bool
) -> tuple[Positions, list[str]]:
    """The positions, or the first behind them that are still there, and what was lost; raises `DataLoss`."""
    if not is_broken(shape, positions):
        return positions, []
    sound, losses = mended(shape, client.history(shape.state.topic), positions)
    if losses and fail_on_data_loss:
        raise DataLoss(
            f"messages of topic {shape.state.topic!r} are lost: {'; '.join(losses)}; to go on without them set "
            f"failOnDataLoss to false"
        )
    return sound, losses


def listed_files(client: Client, topic: str, spans: Sequence[Span]) -> list[list[SegmentFile]]:
    """The live files that hold any of each span's messages; none where they have gone, which a task then finds out."""

    def listed(span: Span) -> list[SegmentFile]:
        try:
            return list(client.segment_files(topic, span.segment, offset=span.start, end_offset=span.stop))
        except (PositionExpired, InvalidRequest):
            return []

    with ThreadPoolExecutor(_SEGMENTS_AT_ONCE) as pool:
        return list(pool.map(listed, spans))


def narrowed(span: Span, files: Sequence[SegmentFile], since_us: int | None, until_us: int | None) -> Span:
    """The span without the files at its ends that have no message of that time: times never run back in a segment."""
    start, stop = span.start, span.stop
    if since_us is not None:
        for file in files:
            if file.last_timestamp is None or microseconds(file.last_timestamp) >= since_us:
                break
            start = file.end_offset
    if until_us is not None:
        for file in reversed(files):
            if file.first_timestamp is None or microseconds(file.first_timestamp) < until_us:
                break
            stop = file.base_offset
    start = min(max(start, span.start), span.stop)
    return replace(span, start=start, stop=max(min(stop, span.stop), start))


def partitions_of(spans: Sequence[Span], files: Sequence[Sequence[SegmentFile]], parts: int) -> list[SpanPartition]:
    """A partition for each span, or for each piece of it where more are asked for, with its files."""
    by_segment: Mapping[int, list[FileRef]] = {
        span.segment: [FileRef.of(file) for file in listed] for span, listed in zip(spans, files, strict=True)
    }
    pieces = in_parts([span for span in spans if span.count], parts)
    return [
        SpanPartition(
            piece,
            tuple(file for file in by_segment[piece.segment] if file.start < piece.stop and piece.start < file.stop),
        )
        for piece in pieces
    ]


def read_partition(
    partition: InputPartition, options: ReadOptions, schema: pa.Schema, rows: RowFilter
) -> Iterator[pa.RecordBatch]:
    """In a task: the partition's rows in the columns of `schema`."""
    if not isinstance(partition, SpanPartition):
        return  # Spark's own, where there is nothing to read
    names = {*schema.names, *rows.columns, "_offset"} - {"segment"}
    store = httpx.Client(timeout=_STORE_TIMEOUT_SECONDS, verify=tls_context())
    with client_of(options.source) as client, store as http:
        reader = SpanReader(
            client,
            http,
            options.source.topic,
            partition.span,
            partition.files,
            sorted(names),
            options.fail_on_data_loss,
        )
        for batch in reader.batches():
            wanted = rows.apply(batch)
            if wanted.num_rows:
                yield spark_batch(partition.span.segment, wanted, schema)


def moment_of(timestamp_us: int) -> datetime:
    """As the client takes it."""
    return _EPOCH + timedelta(microseconds=timestamp_us)
