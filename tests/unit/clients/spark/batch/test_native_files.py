"""Which of the listed files Spark's own reader reads whole, and which in part."""

from braidmq.models import SegmentFile
from braidmq.spark.batch.native_files import NativeFiles, native_files
from braidmq.spark.spans import Span

BASE = "topics/t/segments"


def file(segment: int, name: str, start: int, end: int, *, root: str = "file:///my%20data") -> SegmentFile:
    uri = f"{root}/{BASE}/segment={segment}/{name}.parquet"
    return SegmentFile(uri=uri, segment=segment, base_offset=start, end_offset=end, count=end - start, bytes=1000)


def owners(segment: int, start: int, end: int, *, root: str = "file:///my%20data") -> SegmentFile:
    return file(segment, f"{start:020d}", start, end, root=root)


def path(segment: int, name: str) -> str:
    return f"file:/my data/{BASE}/segment={segment}/{name}.parquet"


def test_whole_files_and_those_at_the_ends() -> None:
    spans = [Span(0, 0, 20), Span(3, 15, 40)]
    files = [[owners(0, 0, 10), owners(0, 10, 20)], [owners(3, 10, 20), owners(3, 20, 30), owners(3, 30, 45)]]
    assert native_files(spans, files) == NativeFiles(
        base=f"file:/my data/{BASE}",
        scheme="file",
        whole=(path(0, f"{0:020d}"), path(0, f"{10:020d}"), path(3, f"{20:020d}")),
        cut=(path(3, f"{10:020d}"), path(3, f"{30:020d}")),
        cut_spans=(Span(3, 15, 40),),
        overlapping=(),
    )


def test_files_outside_the_span_are_left_out() -> None:
    """As after a span was narrowed by the times of its files."""
    found = native_files([Span(0, 10, 20)], [[owners(0, 0, 10), owners(0, 10, 20), owners(0, 20, 30)]])
    assert found is not None
    assert (found.whole, found.cut) == ((path(0, f"{10:020d}"),), ())


def test_a_roll_up_that_counts_from_an_offset_on() -> None:
    """Two brokers have rolled up overlapping ranges of messages."""
    first, second = f"{0:020d}-{20:020d}", f"{10:020d}-{30:020d}"
    found = native_files([Span(0, 5, 28)], [[file(0, first, 0, 20), file(0, second, 20, 30)]])
    assert found is not None
    assert (found.whole, found.cut) == ((), (path(0, first),))
    assert found.overlapping == ((path(0, second), Span(0, 20, 28)),)


def test_on_s3_by_the_name_of_its_connector() -> None:
    found = native_files([Span(0, 0, 10)], [[owners(0, 0, 10, root="s3://bucket/prefix")]])
    assert found is not None
    assert (found.base, found.scheme) == (f"s3a://bucket/prefix/{BASE}", "s3")
    assert found.whole == (f"s3a://bucket/prefix/{BASE}/segment=0/{0:020d}.parquet",)


def test_files_that_spark_cannot_read() -> None:
    assert native_files([Span(0, 0, 10)], [[]]) is None
    assert native_files([Span(0, 0, 10)], [[owners(0, 0, 10, root="memory:")]]) is None
