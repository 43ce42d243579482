"""Segment files for Spark's own Parquet reader: which it can read as they are, and which only in part."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from braidmq.models import SegmentFile
from braidmq.spark.spans import Span
from filer.keys import FileName

_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_GLOB = re.compile(r"([{}\[\]*?\\])")


@dataclass(frozen=True, slots=True)
class NativeFiles:
    """Paths below `base`, the folder of a topic's segments.

    Of those in `whole` each row is wanted, of those in `cut` the ones within the spans. `overlapping` are those that
    count only from an offset on, which two brokers may have made of the same messages.
    """

    base: str
    scheme: str
    whole: tuple[str, ...]
    cut: tuple[str, ...]
    cut_spans: tuple[Span, ...]
    overlapping: tuple[tuple[str, Span], ...]


def native_files(spans: Sequence[Span], files: Sequence[Sequence[SegmentFile]]) -> NativeFiles | None:
    """The files of some spans; None where there are none, or where they are in no place that Spark could know."""
    whole: list[str] = []
    cut: list[str] = []
    cut_spans: list[Span] = []
    overlapping: list[tuple[str, Span]] = []
    for span, listed in zip(spans, files, strict=True):
        for file in listed:
            if file.end_offset <= span.start or span.stop <= file.base_offset:
                continue
            if _base_of(file) != file.base_offset:
                wanted = Span(span.segment, max(span.start, file.base_offset), min(span.stop, file.end_offset))
                overlapping.append((file.uri, wanted))
            elif span.start <= file.base_offset and file.end_offset <= span.stop:
                whole.append(file.uri)
            else:
                cut.append(file.uri)
                cut_spans.append(span)
    uris = [*whole, *cut, *(uri for uri, _ in overlapping)]
    if not uris or urlsplit(uris[0]).scheme not in ("file", "s3"):
        return None
    return NativeFiles(
        _path(uris[0].rsplit("/", 2)[0]),
        urlsplit(uris[0]).scheme,
        tuple(map(_path, whole)),
        tuple(map(_path, cut)),
        tuple(dict.fromkeys(cut_spans)),
        tuple((_path(uri), span) for uri, span in overlapping),
    )


def can_read(spark: SparkSession, files: NativeFiles) -> bool:
    """Whether Spark has a connector for the store, and this machine sees the directory."""
    if files.scheme == "file":
        return Path(files.base.removeprefix("file:")).is_dir()
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass("s3a", context.hadoopConfiguration())
    except (PySparkException, Py4JError):
        return False
    return True


def read_files(spark: SparkSession, files: NativeFiles, schema: StructType) -> list[DataFrame]:
    """Frames of exactly the rows that are wanted, in the columns of `schema`."""
    frames = []
    with _listed_by_driver(spark, files):
        if files.whole:
            frames.append(_parquet(spark, files, files.whole, schema))
        if files.cut:
            frames.append(_parquet(spark, files, files.cut, schema).where(reduce(or_, map(_within, files.cut_spans))))
        for path, span in files.overlapping:
            frames.append(_parquet(spark, files, (path,), schema).where(_within(span)))
    return frames


def _parquet(spark: SparkSession, files: NativeFiles, paths: Sequence[str], schema: StructType) -> DataFrame:
    # Spark would take the characters of a glob in a folder's name for one.
    literal = [_GLOB.sub(r"\\\1", path) for path in paths]
    return spark.read.schema(schema).option("basePath", files.base).parquet(*literal).select(schema.fieldNames())


def _within(span: Span) -> Column:
    offset = col("_offset")
    return (col("segment") == span.segment) & (offset >= span.start) & (offset < span.stop)


def _path(uri: str) -> str:
    """The URI as Hadoop knows it: its S3 connector goes by `s3a`, and a path has no escapes."""
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return f"s3a://{parts.netloc}{parts.path}"
    return f"file:{unquote(parts.path)}"


def _base_of(file: SegmentFile) -> int:
    """The offset that the file itself begins at."""
    name = FileName.parse(file.uri.rsplit("/", 1)[1])
    return file.base_offset if name is None else name.base


@contextlib.contextmanager
def _listed_by_driver(spark: SparkSession, files: NativeFiles) -> Iterator[None]:
    """In a directory, looking at a file takes less than a task that does, of which Spark would start one for each."""
    if files.scheme != "file":
        yield
        return
    before = spark.conf.get(_LISTING_THRESHOLD)
    spark.conf.set(_LISTING_THRESHOLD, str(2**31 - 1))
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(_LISTING_THRESHOLD, before)
