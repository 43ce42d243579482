import pytest

from braidmq import SegmentFile
from braidmq.read.store_of_file import store_of_file
from filer.stores.store_address import StoreAddress

LOCAL = "http://127.0.0.1:9000"
KEY = "topics/t/segments/segment=3/00000000000000000000.parquet"
SIGNED = "X-Amz-Credential=AKIA%2F20260101%2Feu-west-3%2Fs3%2Faws4_request&X-Amz-Signature=1"


@pytest.mark.parametrize(
    ("uri", "url", "store"),
    [
        ("file:///home/ada%20b/braid-data", None, StoreAddress("/home/ada b/braid-data")),
        ("s3://b/a/p", f"{LOCAL}/b/a/p/", StoreAddress("s3://b/a/p", LOCAL, "eu-west-3", "path")),
        ("s3://b", "https://minio/b/", StoreAddress("s3://b", "https://minio", "eu-west-3", "path")),
        ("s3://b", "https://b.minio:9000/", StoreAddress("s3://b", "https://minio:9000", "eu-west-3", "virtual")),
        ("s3://b/p", "https://b.s3.eu-west-3.amazonaws.com/p/", StoreAddress("s3://b/p", region="eu-west-3")),
        ("s3://b/p", None, StoreAddress("s3://b/p")),
        ("other://b/p", "https://b/p/", StoreAddress("other://b/p")),
    ],
)  # fmt: skip
def test_a_signed_address_tells_how_the_broker_reaches_its_store(
    uri: str, url: str | None, store: StoreAddress
) -> None:
    signed = None if url is None else f"{url}{KEY.replace('=', '%3D')}?{SIGNED}"
    file = SegmentFile(uri=f"{uri}/{KEY}", url=signed, segment=3, base_offset=0, end_offset=1, count=1, bytes=9)
    assert store_of_file("t", file) == store
