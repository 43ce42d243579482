import pytest

from braidmq import SegmentFile
from mq.cli.reading.duckdb_sql import duckdb_sql

KEY = "topics/t/segments/segment=3/00000000000000000000.parquet"
SIGNED = "X-Amz-Credential=AKIA%2F20260101%2Feu-west-3%2Fs3%2Faws4_request&X-Amz-Signature=1"
LOCAL = "ENDPOINT '127.0.0.1:9000', USE_SSL false, URL_STYLE 'path'"


@pytest.mark.parametrize(
    ("root", "address", "place"),
    [
        ("s3://b/p", "http://127.0.0.1:9000/b/p", f"SCOPE 's3://b/p', REGION 'eu-west-3', {LOCAL}"),
        (
            "s3://b",
            "https://b.minio.example",
            "SCOPE 's3://b', REGION 'eu-west-3', ENDPOINT 'minio.example', USE_SSL true, URL_STYLE 'vhost'",
        ),
        ("s3://b/p", "https://b.s3.eu-west-3.amazonaws.com/p", "SCOPE 's3://b/p', REGION 'eu-west-3'"),
    ],
)
def test_on_s3_it_says_where_the_bucket_is(root: str, address: str, place: str) -> None:
    url = f"{address}/{KEY.replace('=', '%3D')}?{SIGNED}"
    file = SegmentFile(uri=f"{root}/{KEY}", url=url, segment=3, base_offset=0, end_offset=1, count=1, bytes=9)
    text = duckdb_sql("t", file)
    assert f"SECRET braidmq (TYPE s3, PROVIDER credential_chain, {place});" in text
    assert f"glob('{root}/topics/t/segments/segment=*/*.parquet')" in text


def test_a_directory_needs_no_secret() -> None:
    uri = f"file:///home/ada%20b/braid-data/{KEY}"
    text = duckdb_sql("t", SegmentFile(uri=uri, segment=3, base_offset=0, end_offset=1, count=1, bytes=9))
    assert "SECRET" not in text and "glob('/home/ada b/braid-data/topics/t/segments/" in text
