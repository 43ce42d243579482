"""Who reads a topic's files without a broker is told of damage, and is never given another message."""

from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from braidmq import SegmentFile
from braidmq.read.file_reader import file_batches
from braidmq.read.file_ref import FileRef
from filer.errors import CorruptFile
from filer.format.schema import OF_BYTES
from filer.format.segment_file import Footer, SegmentFileEncoder
from filer.segment.segment_log import SegmentRef
from mq.cli.reading.segment_files import tables_of
from tests.support.topic.damage import with_bit_flipped
from tests.support.topic.segment_files import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REF = SegmentRef("t", 3)


def file_of() -> bytes:
    encoder = SegmentFileEncoder(REF.schema.log, compression="lz4")
    for base in (0, 10):
        encoder.add_row_group(rows(REF, base, 10))
    return encoder.finish(Footer(3, 0, 20, "b/1", 1, 2)).to_pybytes()


@pytest.mark.parametrize("reader", ["by path", "by address", "mq files cat"])
def test_every_byte_but_the_first_magic_is_checked(reader: str, tmp_path: Path) -> None:
    """Those four bytes are in no row group, and nothing is read from them."""
    data, path = file_of(), tmp_path / f"{0:020d}.parquet"
    path.write_bytes(data)
    assert read(reader, path, data) == list(range(20))
    for at in range(4, len(data), 3):
        bad = with_bit_flipped(data, at * 8 + at % 8)
        path.write_bytes(bad)
        with pytest.raises(CorruptFile) as raised:
            read(reader, path, bad)
            raise AssertionError(at)
        assert raised.value.key is not None and path.name in raised.value.key


def read(reader: str, path: Path, data: bytes) -> list[int]:
    if reader == "mq files cat":
        listed = SegmentFile.model_construct(
            segment=3, base_offset=0, end_offset=20, bytes=len(data), uri=path.as_uri(), url=None
        )
        return [offset for table in tables_of(listed) for offset in table["_offset"].to_pylist()]
    by_path = reader == "by path"

    def answer(request: httpx.Request) -> httpx.Response:
        start, stop = (int(each) for each in request.headers["range"].removeprefix("bytes=").split("-"))
        return httpx.Response(206, content=data[start : stop + 1])

    uri = path.as_uri() if by_path else f"s3://bucket/{path.name}"
    file = FileRef(uri, None if by_path else "https://store/x", 0, 20, len(data))
    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        return [
            offset
            for batch in file_batches(http, file, 3, 0, 20, ["_offset"])
            for offset in batch["_offset"].to_pylist()
        ]


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_sparks_own_reader_checks_pages(spark: "SparkSession", tmp_path: Path) -> None:
    from py4j.protocol import Py4JJavaError

    from braidmq.spark.batch.native_files import NativeFiles, read_files
    from braidmq.spark.columns import topic_schema

    folder = tmp_path / "segments" / "segment=3"
    folder.mkdir(parents=True)
    path, data = folder / f"{0:020d}.parquet", file_of()
    path.write_bytes(data)
    files = NativeFiles(f"file:{folder.parent}", "file", (f"file:{path}",), (), (), ())

    def values() -> list[bytes]:
        (frame,) = read_files(spark, files, topic_schema(OF_BYTES))
        return [bytes(row["value"]) for row in frame.collect()]

    assert values() == rows(REF, 0, 20)["value"].to_pylist()
    path.write_bytes(with_bit_flipped(data, data.index(b"message") * 8))
    with pytest.raises(Py4JJavaError, match=path.name):
        values()
