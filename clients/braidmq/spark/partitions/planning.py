"""Plans reads: from options to the partitions that tasks read, by brokers' answers about positions and files."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import httpx
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from braidmq.client import Client
from braidmq.errors import InvalidRequest, PositionExpired
from braidmq.models import SegmentFile
from braidmq.read.file_ref import FileRef
from braidmq.spark.columns import RowFilter, spark_batch
from braidmq.spark.connection import open_client
from braidmq.spark.errors import DataLoss, InvalidOption
from braidmq.spark.options import PositionOption, ReadOptions
from braidmq.spark.partitions.data_loss import has_lost_messages, repaired_positions
from braidmq.spark.partitions.span_reader import SpanReader
from braidmq.spark.spans import Span, only_segments, spans_between, split_spans
from braidmq.spark.topic_snapshot import TopicSnapshot
from braidmq.times import microseconds
from braidmq.transport.tls import tls_context
from filer.errors import InvalidMarker
from filer.topic.positions import Positions, check_positions

_CONCURRENT_SEGMENTS = 8
_STORE_TIMEOUT_SECONDS = 30.0


@dataclass
class SpanPartition(InputPartition):
    """The messages that one task reads, and the files that held them when the read was planned."""

    span: Span
    files: tuple[FileRef, ...]


def spans_to_read(client: Client, snapshot: TopicSnapshot, options: ReadOptions) -> list[Span]:
    """Return the spans that a batch reads, by segment, without regard to its times."""
    if options.ranges is not None:
        return list(options.ranges)
    start, end = (resolve_position(client, snapshot, option, options) for option in (options.start, options.end))
    spans = spans_between(snapshot, start, end)
    if options.slots is not None:
        first, stop = options.slots
        within = [each.id for each in snapshot.state.segments if each.start_slot < stop and first < each.stop_slot]
        spans = only_segments(spans, within)
    return (
        spans
        if options.segments is None
        else only_segments(spans, _checked_segments(client, snapshot, options.segments))
    )


def _checked_segments(client: Client, snapshot: TopicSnapshot, segments: Sequence[int]) -> Sequence[int]:
    """Return the segments if each is or was one of the topic. Raises `InvalidOption`: a wrong id would read nothing.

    A segment that was just opened, and that this broker does not know yet, is refused too: its messages would be
    missing. Ids leave gaps (those of bulk loads lie far above the others), so that a gone one is looked up.
    """
    topic, last = snapshot.state.topic, snapshot.state.next_segment - 1
    gone = set(segments) - {segment.id for segment in snapshot.state.segments}
    if gone and min(gone) <= last:
        gone -= {life.segment for life in client.history(topic)}
    if gone:
        raise InvalidOption(f"topic {topic!r} has no segment {min(gone)}, and never had; the newest one is {last}")
    return segments


def resolve_position(
    client: Client, snapshot: TopicSnapshot, option: PositionOption, options: ReadOptions
) -> Positions:
    """Return the positions that an option names. Raises `InvalidOption`, and `DataLoss` if they have expired."""
    if option == "earliest":
        return snapshot.earliest()
    if option == "latest":
        return snapshot.latest()
    if not has_lost_messages(snapshot, option):
        try:
            check_positions(snapshot.state, option)
        except InvalidMarker as error:
            # Markers are complete, so this is most likely an object that a user wrote.
            raise InvalidOption(f"{error}; an object has offsets of segments that take all keys together") from error
        return option
    return readable_positions(client, snapshot, option, fail_on_data_loss=options.fail_on_data_loss)[0]


def readable_positions(
    client: Client, snapshot: TopicSnapshot, positions: Positions, *, fail_on_data_loss: bool
) -> tuple[Positions, list[str]]:
    """Return the positions, or the first ones after them that exist, and what was lost. Raises `DataLoss`."""
    if not has_lost_messages(snapshot, positions):
        return positions, []
    readable, losses = repaired_positions(snapshot, client.history(snapshot.state.topic), positions)
    if losses and fail_on_data_loss:
        raise DataLoss(
            f"messages of topic {snapshot.state.topic!r} are lost: {'; '.join(losses)}; to go on without them set "
            f"failOnDataLoss to false"
        )
    return readable, losses


def list_files(client: Client, topic: str, spans: Sequence[Span]) -> list[list[SegmentFile]]:
    """Return the live files of each span; none if its messages have expired, which the task that reads it reports."""

    def files_of(span: Span) -> list[SegmentFile]:
        try:
            return list(client.segment_files(topic, span.segment, offset=span.start, end_offset=span.stop))
        except (PositionExpired, InvalidRequest):
            return []

    with ThreadPoolExecutor(_CONCURRENT_SEGMENTS) as pool:
        return list(pool.map(files_of, spans))


def narrowed_by_time(span: Span, files: Sequence[SegmentFile], since_us: int | None, until_us: int | None) -> Span:
    """Return the span without the files at its ends that have no message of that time.

    Within a segment, times never decrease.
    """
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


def partitions_for(spans: Sequence[Span], files: Sequence[Sequence[SegmentFile]], parts: int) -> list[SpanPartition]:
    """Return at least about `parts` partitions, each a span or a piece of one, with its files."""
    by_segment: Mapping[int, list[FileRef]] = {
        span.segment: [FileRef.of(file) for file in listed] for span, listed in zip(spans, files, strict=True)
    }
    pieces = split_spans([span for span in spans if span.count], parts)
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
    """Read the partition's rows, in the columns of `schema`. This runs in a task."""
    if not isinstance(partition, SpanPartition):
        return  # Spark makes a partition of its own if there is nothing to read
    names = {*schema.names, *rows.columns, "_offset"} - {"segment"}
    store = httpx.Client(timeout=_STORE_TIMEOUT_SECONDS, verify=tls_context())
    with open_client(options.source) as client, store as http:
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
