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
from braidmq.spark.columns import RowFilter, arrow_schema, check_schema
from braidmq.spark.options import ReadOptions
from braidmq.spark.planning import (
    client_of,
    listed_files,
    moment_of,
    partitions_of,
    place_of,
    read_partition,
    shape_of,
    sound_positions,
)
from braidmq.spark.shape import Shape
from braidmq.spark.stream_offset import StreamOffset, micro_batch, next_offset
from filer.positions import Positions, to_marker

_log = logging.getLogger(__name__)
_IDLE_SECONDS = 0.5
_EVERYTHING = RowFilter(since_us=None, until_us=None, slots=None)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver, in a process of its own that lasts as long as the query, and reads in tasks.

    What a micro-batch reads follows from the two offsets in the checkpoint alone (`micro_batch`): a driver that stops
    at any line plans the same one again. Brokers keep nothing of a query, so `commit` has nothing to do.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._wanted = options, schema
        self._schema = arrow_schema(schema)
        self._client: Client | None = None
        self._target: Shape | None = None
        self._seen: Shape | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        return StreamOffset(self._options.source.topic, self._initial(), initial=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As `maxOffsetsPerTrigger` says."""
        most = self._options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the micro-batch that begins at `start` ends; `start` where there is nothing new.

        Raises `DataLoss` where retention has taken messages behind `start`.
        """
        offset = StreamOffset.from_json(start, self._options.source.topic)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._next(offset, most)
        if end is offset and self._target is None and self._news_behind(offset):
            end = self._next(offset, most)
        return start if end is offset else end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what there is now, and no further. What seals or opens segments later is not looked at."""
        self._target = self._shape()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the topic when it was last looked at, for the query's progress."""
        if self._seen is None:
            return None
        return StreamOffset(self._options.source.topic, self._seen.latest()).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The spans of a micro-batch, with the files that hold them now."""
        topic = self._options.source.topic
        spans = micro_batch(StreamOffset.from_json(start, topic), StreamOffset.from_json(end, topic))
        if not spans:
            return []
        files = listed_files(self._broker(), topic, spans)
        return list(partitions_of(spans, files, self._options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: a partition's rows."""
        return read_partition(partition, self._options, self._schema, _EVERYTHING)

    def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def _next(self, offset: StreamOffset, most_rows: int | None) -> StreamOffset:
        shape = self._target or self._shape()
        fail = self._options.fail_on_data_loss
        sound, losses = sound_positions(self._broker(), shape, offset.positions, fail_on_data_loss=fail)
        if losses:
            _log.warning("topic %s: going on without what is lost: %s", offset.topic, "; ".join(losses))
        return next_offset(shape, offset, sound, most_rows=most_rows)

    def _news_behind(self, offset: StreamOffset) -> bool:
        """Wait a little for a message: Spark asks a hundred times a second where there is none."""
        marker = to_marker(offset.topic, offset.positions)
        try:
            return self._broker().wait_behind(offset.topic, marker, seconds=_IDLE_SECONDS)
        except PositionExpired:
            return True  # retention has just taken something: planning says what, and whether that matters

    def _initial(self) -> Positions:
        options = self._options
        if options.since_us is not None:
            return self._broker().position(options.source.topic, from_=moment_of(options.since_us)).offsets
        return place_of(self._broker(), self._shape(), options.start, options)

    def _shape(self) -> Shape:
        """The topic as it stands now; raises `InvalidOption` for a column that it has not."""
        self._seen = shape_of(self._broker(), self._options.source)
        check_schema(self._wanted, self._seen.state.config)
        return self._seen

    def _broker(self) -> Client:
        """Made when it is first needed: readers are pickled before."""
        if self._client is None:
            self._client = client_of(self._options.source)
        return self._client
