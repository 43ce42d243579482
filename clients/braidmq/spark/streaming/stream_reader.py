"""The data source's streaming reader."""

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from braidmq.client import Client
from braidmq.errors import PositionExpired
from braidmq.spark.columns import RowFilter, arrow_schema, check_schema, schema_of
from braidmq.spark.connection import fetch_snapshot, open_client
from braidmq.spark.options import ReadOptions
from braidmq.spark.partitions.planning import (
    list_files,
    partitions_for,
    read_partition,
    readable_positions,
    resolve_position,
)
from braidmq.spark.spans import spans_between
from braidmq.spark.streaming.shown_progress import ShownProgress
from braidmq.spark.streaming.stream_offset import StreamOffset, micro_batch, next_offset
from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.times import moment_of
from filer.topic.positions import Positions, to_marker

_log = logging.getLogger(__name__)
_IDLE_SECONDS = 0.5
_EVERYTHING = RowFilter(since_us=None, until_us=None, slots=None)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver and reads them in tasks.

    In the driver it lives in a process of its own, as long as the query. The messages of a micro-batch follow only from
    the two offsets in the checkpoint (`micro_batch`), so a driver that stops at any line plans the same one again.
    Brokers keep no state of a query. With the option `group`, a group shows how far the query has come.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._wanted = options, schema
        self._schema = arrow_schema(schema)
        self._client: Client | None = None
        self._target: TopicSnapshot | None = None
        self._latest: TopicSnapshot | None = None
        self._reached: StreamOffset | None = None
        self._shown: ShownProgress | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        return StreamOffset(self._options.source.topic, self._initial(), initial=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of `maxOffsetsPerTrigger`."""
        most = self._options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the micro-batch that begins at `start` ends; `start` if there is nothing new.

        Raises `DataLoss` if retention has removed messages after `start`.
        """
        offset = StreamOffset.from_json(start, self._options.source.topic)
        self._show(offset)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._next(offset, most)
        if end is offset and self._target is None and self._wait_for_message(offset):
            end = self._next(offset, most)
        self._reached = end
        return start if end is offset else end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the current end of the topic and no further. Later transitions are ignored."""
        self._target = self._fetch_snapshot()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of the topic when it was last fetched, for the query's progress.

        `lag_messages` is how many messages lie between the end of the micro-batch that was planned last and that. Spark
        only shows the result of this method, and has no other way for a source in Python to report a number.
        """
        if self._latest is None:
            return None
        told = StreamOffset(self._options.source.topic, self._latest.latest()).to_json()
        if self._reached is not None:
            behind = spans_between(self._latest, self._reached.positions, self._latest.latest())
            told["lag_messages"] = sum(span.count for span in behind)
        return told

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the spans of a micro-batch, with the files that hold them now."""
        topic = self._options.source.topic
        spans = micro_batch(StreamOffset.from_json(start, topic), StreamOffset.from_json(end, topic))
        if not spans:
            return []
        files = list_files(self._broker(), topic, spans)
        return list(partitions_for(spans, files, self._options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition's rows. This runs in a task."""
        return read_partition(partition, self._options, self._schema, _EVERYTHING)

    def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def _show(self, done: StreamOffset) -> None:
        """Make the group of the options, if there is one, show that everything before `done` is done.

        Spark plans a micro-batch when the one before is noted as done in the checkpoint. It calls `commit` later, only
        when there is something new, so a query that has read all would show a lag. After a restart Spark reads the
        checkpoint, not the group: a driver that stops at this very line shows too little for a while, and no more.
        """
        if self._options.group is None:
            return
        if self._shown is None:
            self._shown = ShownProgress(self._broker().group(done.topic, self._options.group))
        self._shown.move_to(done.topic, done.positions)

    def _next(self, offset: StreamOffset, most_rows: int | None) -> StreamOffset:
        snapshot = self._target or self._fetch_snapshot()
        fail = self._options.fail_on_data_loss
        readable, losses = readable_positions(self._broker(), snapshot, offset.positions, fail_on_data_loss=fail)
        if losses:
            _log.warning("topic %s: going on without lost messages: %s", offset.topic, "; ".join(losses))
        return next_offset(snapshot, offset, readable, most_rows=most_rows)

    def _wait_for_message(self, offset: StreamOffset) -> bool:
        """Wait a little for a message. Without the wait, Spark would ask a hundred times a second."""
        marker = to_marker(offset.topic, offset.positions)
        try:
            return self._broker().wait_behind(offset.topic, marker, seconds=_IDLE_SECONDS)
        except PositionExpired:
            return True  # retention has just removed messages: planning reports which, and whether that matters

    def _initial(self) -> Positions:
        options = self._options
        if options.since_us is not None:
            return self._broker().position(options.source.topic, from_=moment_of(options.since_us)).offsets
        return resolve_position(self._broker(), self._fetch_snapshot(), options.start, options)

    def _fetch_snapshot(self) -> TopicSnapshot:
        """Return the topic as it is now. Raises `InvalidOption` for a column that it does not have."""
        self._latest = fetch_snapshot(self._broker(), self._options.source)
        check_schema(self._wanted, schema_of(self._latest))
        return self._latest

    def _broker(self) -> Client:
        """Return the client, which is made at the first use because readers are pickled before."""
        if self._client is None:
            self._client = open_client(self._options.source)
        return self._client
