"""`load`: a data frame into a topic past the brokers, in segments that the topic adopts at once (DESIGN.md §10a).

Each reserved segment is one task: the rows of its slots, sorted, so that they come out the same however often and in
whatever order they are computed. So the files are the same bytes each time: a task that is tried again finds them
there, and a load that was stopped at any line goes on under its name.
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

from braidmq.async_client import DEFAULT_URL
from braidmq.errors import FileTaken, LoadCommitted, LoadOvertaken
from braidmq.loads import MOST_DEFAULT_SEGMENTS, TRIES, WrittenFile, check_committed
from braidmq.models import CommittedLoad
from braidmq.retry import Retry
from braidmq.spark.options import Source
from braidmq.spark.planning import client_of
from braidmq.spark.quiet import quiet_about_pandas
from braidmq.spark.rows import check_rows
from filer.clock import SystemClock
from filer.load_files import load_files
from filer.load_segment import LoadSegment
from filer.slots import SLOTS

_PATIENT = Retry(give_up_after_seconds=120.0)
"""A broker may restart meanwhile, and where Spark is local no task is tried again."""
_FILES = pa.schema([(field.name, pa.int64()) for field in fields(WrittenFile)])
_FILES_DDL = ", ".join(f"{name} bigint" for name in _FILES.names)


def load(
    frame: DataFrame,
    topic: str,
    *,
    url: str = DEFAULT_URL,
    load: str | None = None,
    segments: int | None = None,
    by_time: bool = True,
    headers: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> CommittedLoad:
    """Store all rows of a frame (`key`, `value`, `headers`, `event_time`) as one load: none is seen before all are.

    Each key has what was published before, then the load in the order of `event_time` (and where that is the same, of
    `value`), then what comes after. A segment is in that order over all its keys; with `by_time=False` the messages of
    a key lie together instead, which compresses better. `segments` are written by a task each. The same `load` run
    again goes on where it stopped, and tells the same once it is committed. `progress` is told how it gets on. Raises
    `InvalidOption` for rows that are no messages, `LoadRefused`, and `PySparkException` where a task fails: with
    `FileTaken` in it where an earlier run of that name had other rows, and `FileTaken` itself where that one is
    committed and had more or fewer.
    """
    check_rows(frame.schema)
    source = Source(url, topic, dict(headers or {}))
    name = SystemClock().ulid() if load is None else load
    parts = (
        min(frame.sparkSession.sparkContext.defaultParallelism, MOST_DEFAULT_SEGMENTS) if segments is None else segments
    )
    with client_of(source, _PATIENT) as client:
        known, tries = client.committed_load(topic, name), 0
        while known is None:
            tries += 1
            reserved = client.reserve_load(topic, name, segments=parts)
            try:
                files = _write_files(frame, source, reserved, by_time=by_time)
                if progress is not None:
                    progress(f"files written: {len(files):,}; the brokers look through them")
                return client.commit_load(topic, name, files)
            except (LoadOvertaken, LoadCommitted, PySparkException) as failure:
                # Spark has only the text of what a task raised. These rows are not those of the load, committed or not.
                if FileTaken.__name__ in str(failure):
                    raise
                # Where somebody else has committed this load, or one that was reserved later, tasks and the commit
                # fail alike. After the latter the name has other segments, and all is written anew.
                known = client.committed_load(topic, name)
                if known is None and (tries == TRIES or client.reserve_load(topic, name, segments=parts) == reserved):
                    raise
    return check_committed(known, frame.count())


def _write_files(
    frame: DataFrame, source: Source, segments: Sequence[LoadSegment], *, by_time: bool
) -> list[WrittenFile]:
    """The rows as files of the segments, a task each."""
    sorted_rows = (
        frame.withColumn("_slot", _slot_of(frame.columns))
        .withColumn("_part", _part_of(col("_slot"), [segment.start_slot for segment in segments]))
        .drop("_slot")
        .repartitionById(len(segments), col("_part"))
        .sortWithinPartitions("_part", *_order(frame.columns, by_time=by_time))
    )
    with warnings.catch_warnings():
        quiet_about_pandas()
        written = sorted_rows.mapInArrow(_Task(source, tuple(segments)).write, _FILES_DDL).collect()
    return sorted(WrittenFile(*row) for row in written)


def _slot_of(names: Sequence[str]) -> Column:
    """The slot of a row's key; without a key, of its value: the same however often it is read."""
    found = [col(name).cast("binary") for name in ("key", "value") if name in names]
    return crc32(coalesce(*found, lit("").cast("binary"))).bitwiseAND(SLOTS - 1)


def _part_of(slot: Column, starts: Sequence[int], first: int = 0) -> Column:
    """The place in `starts` of the last one that is not above the slot, found by halving."""
    if len(starts) == 1:
        return lit(first)
    middle = len(starts) // 2
    left, right = _part_of(slot, starts[:middle], first), _part_of(slot, starts[middle:], first + middle)
    return when(slot < starts[middle], left).otherwise(right)


def _order(names: Sequence[str], *, by_time: bool) -> list[Column]:
    """All columns, so that rows that are not alike have an order; a map has none of its own."""
    first = ("event_time", "key", "value") if by_time else ("key", "event_time", "value")
    return [*(col(name) for name in first if name in names), *([to_json("headers")] if "headers" in names else [])]


@dataclass(frozen=True, slots=True)
class _Task:
    """Writes the rows of a part as files of its segment."""

    source: Source
    segments: tuple[LoadSegment, ...]

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: what was written."""
        with client_of(self.source, _PATIENT) as client:
            for part, rows in groupby(by_part(batches), key=itemgetter(0)):
                segment = self.segments[part]
                for file in load_files((batch for _, batch in rows), segment):
                    written = client.put_load_file(self.source.topic, segment.load, file)
                    yield pa.RecordBatch.from_pylist([asdict(written)], schema=_FILES)


def by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches cut where the part changes, without that column."""
    for batch in batches:
        parts = np.asarray(batch["_part"])
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(bounds):
            if start < stop:
                yield int(parts[start]), batch.slice(start, stop - start).drop_columns(["_part"])
