"""`load`: a data frame into a topic past the brokers, in segments that the topic adopts at once (DESIGN.md §10a).

Each reserved segment is one task: the rows of its slots, sorted, so that they come out the same however often and in
whatever order they are computed. So the files are the same bytes each time: a task that is tried again finds them
there, and a load that was stopped at any line goes on under its name.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import reduce
from itertools import groupby, pairwise
from operator import add, itemgetter

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce, col, crc32, lit, to_json

from braidmq.async_client import DEFAULT_URL
from braidmq.client import Client
from braidmq.errors import LoadOvertaken
from braidmq.loads import MOST_SEGMENTS, TRIES, WrittenFile
from braidmq.models import CommittedLoad
from braidmq.spark.options import Source
from braidmq.spark.planning import client_of
from braidmq.spark.rows import check_rows
from filer.clock import SystemClock
from filer.load_files import load_files
from filer.load_segment import LoadSegment
from filer.slots import SLOTS

_FILES = pa.schema([(field.name, pa.int64()) for field in fields(WrittenFile)])
_FILES_DDL = ", ".join(f"{name} bigint" for name in _FILES.names)


def load(
    frame: DataFrame,
    topic: str,
    *,
    url: str = DEFAULT_URL,
    load: str | None = None,
    segments: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> CommittedLoad:
    """Store all rows of a frame (`key`, `value`, `headers`, `event_time`) as one load: none is seen before all are.

    Each key has what was published before, then the load in the order of `event_time` (and where that is the same, of
    `value`), then what comes after. `segments` are written by a task each. The same `load` run again goes on where it
    stopped, and tells the same once it is committed. Raises `InvalidOption` for rows that are no messages,
    `LoadRefused`, and `FileTaken` where an earlier run of that name had other rows.
    """
    check_rows(frame.schema)
    source = Source(url, topic, dict(headers or {}))
    name = SystemClock().ulid() if load is None else load
    with client_of(source) as client:
        for attempt in range(TRIES):
            known = client.committed_load(topic, name)
            if known is not None:
                return known
            try:
                return _run(frame, client, source, name, segments)
            except LoadOvertaken:
                # Another load was reserved later and committed first: this one begins anew, under the same name.
                if attempt == TRIES - 1:
                    raise
    raise AssertionError("unreachable")


def _run(frame: DataFrame, client: Client, source: Source, name: str, segments: int | None) -> CommittedLoad:
    parallel = min(frame.sparkSession.sparkContext.defaultParallelism, MOST_SEGMENTS)
    reserved = client.reserve_load(source.topic, name, segments=segments or parallel)
    files = _write_files(frame, source, reserved)
    return client.commit_load(source.topic, name, files)


def _write_files(frame: DataFrame, source: Source, segments: Sequence[LoadSegment]) -> list[WrittenFile]:
    """The rows as files of the segments, a task each."""
    sorted_rows = (
        frame.withColumn("_part", _part_of([segment.start_slot for segment in segments], frame.columns))
        .repartitionById(len(segments), col("_part"))
        .sortWithinPartitions("_part", *_order(frame.columns))
    )
    with warnings.catch_warnings():
        # Nothing of pandas is used here, but Spark looks for it, and speaks of its version.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        written = sorted_rows.mapInArrow(_Task(source, tuple(segments)).write, _FILES_DDL).collect()
    return sorted(WrittenFile(*row) for row in written)


def _part_of(starts: Sequence[int], names: Sequence[str]) -> Column:
    """The place of the segment of a row's key; without a key, of its value: the same however often it is read."""
    found = [col(name).cast("binary") for name in ("key", "value") if name in names]
    spread_by = coalesce(*found, lit("").cast("binary"))
    slot = crc32(spread_by).bitwiseAND(SLOTS - 1)
    return reduce(add, ((slot >= start).cast("int") for start in starts[1:]), lit(0))


def _order(names: Sequence[str]) -> list[Column]:
    """All columns, so that rows that are not alike have an order; a map has none of its own."""
    first = [name for name in ("key", "event_time", "value") if name in names]
    return [*(col(name) for name in first), *([to_json("headers")] if "headers" in names else [])]


@dataclass(frozen=True, slots=True)
class _Task:
    """Writes the rows of a part as files of its segment."""

    source: Source
    segments: tuple[LoadSegment, ...]

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: what was written."""
        with client_of(self.source) as client:
            for part, rows in groupby(_by_part(batches), key=itemgetter(0)):
                segment = self.segments[part]
                for file in load_files((batch for _, batch in rows), segment):
                    written = client.put_load_file(self.source.topic, segment.load, file)
                    yield pa.RecordBatch.from_pylist([asdict(written)], schema=_FILES)


def _by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches cut where the part changes, without that column."""
    for batch in batches:
        parts = np.asarray(batch["_part"])
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(bounds):
            if start < stop:
                yield int(parts[start]), batch.slice(start, stop - start).drop_columns(["_part"])
