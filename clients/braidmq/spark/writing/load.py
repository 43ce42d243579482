"""`load`: a data frame as a bulk load, past the brokers, in segments that the topic adopts at once.

See docs/design.md §10a. Each reserved segment is one task, which writes the rows of the segment's slots. They are
sorted, so they are the same however often and in whatever order they are computed. So the files have the same bytes
each time: a task that is tried again finds them there, and a load that stopped at any line goes on under its name.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce, col, crc32, lit, to_json, when

from braidmq.bulk_load.loader import MOST_DEFAULT_SEGMENTS, TRIES, WrittenFile, check_committed
from braidmq.defaults import default_url
from braidmq.errors import FileTaken, LoadCommitted, LoadOvertaken
from braidmq.models import CommittedLoad
from braidmq.spark.connection import open_client
from braidmq.spark.options import Source, checked_credentials
from braidmq.spark.pandas_warning import ignore_pandas_warning
from braidmq.spark.writing.rows import check_rows
from braidmq.transport.retry import Retry
from filer.bulk_load.load_files import load_files
from filer.bulk_load.load_segment import LoadSegment
from filer.clock import SystemClock
from filer.slots import SLOTS

_PATIENT_RETRY = Retry(give_up_after_seconds=120.0)
"""A broker may restart meanwhile, and a local Spark does not try tasks again."""
_FILES = pa.schema([(field.name, pa.int64()) for field in fields(WrittenFile)])
_FILES_DDL = ", ".join(f"{name} bigint" for name in _FILES.names)


def load(
    frame: DataFrame,
    topic: str,
    *,
    url: str | None = None,
    load: str | None = None,
    segments: int | None = None,
    by_time: bool = True,
    headers: Mapping[str, str] | None = None,
    credentials: Mapping[str, str] | None = None,
    retry: Retry | None = None,
    progress: Callable[[str], None] | None = None,
) -> CommittedLoad:
    """Store all rows of a frame (`key`, `value`, `headers`, `event_time`) as one bulk load, visible all at once.

    Each key has the messages published before, then the load's in order of `event_time` (and of `value` if that is
    equal), then those that follow. By default a segment is in this order over all its keys; with `by_time=False` the
    messages of each key are together instead, which compresses better. Each of the `segments` is written by one task.
    If the same `load` runs again, it goes on where it stopped; once it is committed, it returns the same answer.
    `progress` is called with messages about the progress; `retry` says how long to wait for brokers that do not answer
    (120 seconds). Raises `InvalidOption` for rows that cannot be messages, `LoadRefused`, and `PySparkException` if a
    task fails. If an earlier run of that name had other rows, that exception contains `FileTaken`. If the earlier run
    is committed and had more or fewer rows, it raises `FileTaken`.
    """
    check_rows(frame.schema)
    source = Source(url or default_url(), topic, dict(headers or {}), checked_credentials(credentials or {}))
    name = SystemClock().ulid() if load is None else load
    if segments is None:
        segments = min(frame.sparkSession.sparkContext.defaultParallelism, MOST_DEFAULT_SEGMENTS)
    retry = _PATIENT_RETRY if retry is None else retry
    with open_client(source, retry) as client:
        known, tries = client.committed_load(topic, name), 0
        while known is None:
            tries += 1
            reserved = client.reserve_load(topic, name, segments=segments)
            try:
                files = _write_files(frame, source, reserved, retry, by_time=by_time)
                if progress is not None:
                    progress(f"files written: {len(files):,}; the brokers check them")
                return client.commit_load(topic, name, files)
            except (LoadOvertaken, LoadCommitted, PySparkException) as failure:
                # Spark passes on only the text of a task's error. The rows differ from the load's, committed or not.
                if FileTaken.__name__ in str(failure):
                    raise
                # If another run has committed this load, or one reserved later, tasks and the commit fail in the same
                # way. In the second case the name gets other segments, and everything is written again.
                known = client.committed_load(topic, name)
                if known is None and (
                    tries == TRIES or client.reserve_load(topic, name, segments=segments) == reserved
                ):
                    raise
    return check_committed(known, frame.count())


def _write_files(
    frame: DataFrame, source: Source, segments: Sequence[LoadSegment], retry: Retry, *, by_time: bool
) -> list[WrittenFile]:
    """Write the rows as files of the segments, each in a task."""
    sorted_rows = (
        frame.withColumn("_slot", _slot_of(frame.columns))
        .withColumn("_segment_index", _index_of(col("_slot"), [segment.start_slot for segment in segments]))
        .drop("_slot")
        .repartitionById(len(segments), col("_segment_index"))
        .sortWithinPartitions("_segment_index", *_order(frame.columns, by_time=by_time))
    )
    with warnings.catch_warnings():
        ignore_pandas_warning()
        written = sorted_rows.mapInArrow(_Task(source, tuple(segments), retry).write, _FILES_DDL).collect()
    return sorted(WrittenFile(*row) for row in written)


def _slot_of(names: Sequence[str]) -> Column:
    """The slot of a row's key; without a key, of its value, which is the same each time it is computed."""
    found = [col(name).cast("binary") for name in ("key", "value") if name in names]
    return crc32(coalesce(*found, lit("").cast("binary"))).bitwiseAND(SLOTS - 1)


def _index_of(slot: Column, starts: Sequence[int], first: int = 0) -> Column:
    """The index in `starts` of the last one that is not above the slot, by binary search."""
    if len(starts) == 1:
        return lit(first)
    middle = len(starts) // 2
    left, right = _index_of(slot, starts[:middle], first), _index_of(slot, starts[middle:], first + middle)
    return when(slot < starts[middle], left).otherwise(right)


def _order(names: Sequence[str], *, by_time: bool) -> list[Column]:
    """All columns, so that different rows have a defined order. A map has none, so its JSON is compared."""
    first = ("event_time", "key", "value") if by_time else ("key", "event_time", "value")
    return [*(col(name) for name in first if name in names), *([to_json("headers")] if "headers" in names else [])]


@dataclass(frozen=True, slots=True)
class _Task:
    """Writes the rows of each segment as its files."""

    source: Source
    segments: tuple[LoadSegment, ...]
    retry: Retry

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows and return the files written. This runs in a task."""
        with open_client(self.source, self.retry) as client:
            for index, rows in groupby(by_segment_index(batches), key=itemgetter(0)):
                segment = self.segments[index]
                for file in load_files((batch for _, batch in rows), segment):
                    written = client.put_load_file(self.source.topic, segment.load, file)
                    yield pa.RecordBatch.from_pylist([asdict(written)], schema=_FILES)


def by_segment_index(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut the batches where the segment index changes, and drop that column."""
    for batch in batches:
        indexes = np.asarray(batch["_segment_index"])
        bounds = [0, *(np.flatnonzero(np.diff(indexes)) + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(bounds):
            if start < stop:
                yield int(indexes[start]), batch.slice(start, stop - start).drop_columns(["_segment_index"])
