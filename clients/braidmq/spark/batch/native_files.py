"""Segment files for Spark's own Parquet reader: which it can read whole, and which in part."""

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
_VERIFY_PAGES = "parquet.page.verify-checksum.enabled"
_GLOB = re.compile(r"([{}\[\]*?\\])")


@dataclass(frozen=True, slots=True)
class NativeFiles:
    """Paths below `base`, the folder of a topic's segments.

    Every row of the files in `whole` is read, and of those in `cut` the rows within `cut_spans`. The files in
    `overlapping` count only within their span: two brokers may have written the same messages twice.
    """

    base: str
    scheme: str
    whole: tuple[str, ...]
    cut: tuple[str, ...]
    cut_spans: tuple[Span, ...]
    overlapping: tuple[tuple[str, Span], ...]


def native_files(spans: Sequence[Span], files: Sequence[Sequence[SegmentFile]]) -> NativeFiles | None:
    """Return the files of these spans; None if there are none, or if they are on a store that Spark cannot read."""
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
    """Whether Spark has a connector for the store, or this machine sees the directory."""
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
    """Return data frames of exactly the rows to read, in the columns of `schema`."""
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
    # Spark would interpret glob characters in the name of a folder.
    literal = [_GLOB.sub(r"\\\1", path) for path in paths]
    reader = spark.read.schema(schema).option("basePath", files.base).option(_VERIFY_PAGES, "true")
    return reader.parquet(*literal).select(schema.fieldNames())


def _within(span: Span) -> Column:
    offset = col("_offset")
    return (col("segment") == span.segment) & (offset >= span.start) & (offset < span.stop)


def _path(uri: str) -> str:
    """The URI in Hadoop's form: S3's scheme is `s3a`, and paths are not escaped."""
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return f"s3a://{parts.netloc}{parts.path}"
    return f"file:{unquote(parts.path)}"


def _base_of(file: SegmentFile) -> int:
    """The offset at which the file itself begins."""
    name = FileName.parse(file.uri.rsplit("/", 1)[1])
    return file.base_offset if name is None else name.base


@contextlib.contextmanager
def _listed_by_driver(spark: SparkSession, files: NativeFiles) -> Iterator[None]:
    """List the files of a directory in the driver: that is cheaper than the task for each that Spark would start."""
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
