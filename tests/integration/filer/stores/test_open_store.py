from pathlib import Path

import pytest

from filer.clock import SystemClock
from filer.errors import InvalidInput
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from filer.stores.open_store import open_store
from filer.stores.s3.s3_store import S3Store
from filer.stores.store_address import StoreAddress


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "file://localhost{}"])
async def test_directory(tmp_path: Path, form: str) -> None:
    store = open_store(StoreAddress(form.format(tmp_path / "data")), SystemClock())
    assert isinstance(store, LocalStore)
    assert store.uri("a/b") == f"file://{tmp_path}/data/a/b"
    await store.close()


async def test_relative_directory_and_encoded_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("./braid data", f"file://{tmp_path}/braid%20data", "~/braid data"):
        monkeypatch.setenv("HOME", str(tmp_path))
        store = open_store(StoreAddress(url), SystemClock())
        assert store.uri("key") == f"file://{tmp_path}/braid%20data/key"
        await store.close()


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_memory(url: str) -> None:
    assert isinstance(open_store(StoreAddress(url), SystemClock()), MemoryStore)


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("s3://bucket", "s3://bucket/key"),
        ("s3://bucket/", "s3://bucket/key"),
        ("s3://bucket/some/prefix", "s3://bucket/some/prefix/key"),
        ("S3://bucket/some/prefix/", "s3://bucket/some/prefix/key"),
    ],
)
async def test_s3(url: str, uri: str) -> None:
    store = open_store(StoreAddress(url, endpoint_url="http://127.0.0.1:1", region="eu-west-1"), SystemClock())
    assert isinstance(store, S3Store)
    assert store.uri("key") == uri
    await store.close()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "address is empty"),
        (" ", "address is empty"),
        ("gs://bucket/prefix", "s3://bucket/prefix, file:///directory"),
        ("http://host/bucket", "s3://bucket/prefix, file:///directory"),
        ("s3://", "not the URL of a bucket"),
        ("s3:bucket", "not the URL of a bucket"),
        ("s3:///prefix", "not the URL of a bucket"),
        ("s3://key:secret@bucket", "not the URL of a bucket"),
        ("s3://bucket/prefix?region=x", "not the URL of a bucket"),
        ("s3://bucket/a/../b", "no prefix of object keys"),
        ("file://host/directory", "three slashes"),
        ("file:directory", "three slashes"),
        ("file:///directory#part", "three slashes"),
    ],
)
def test_other_addresses_are_refused(url: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        open_store(StoreAddress(url), SystemClock())


@pytest.mark.parametrize(
    "endpoint", ["localhost:9000", "127.0.0.1", "ftp://host", "http://", "http://h:99999", "http://["]
)
def test_endpoints_without_a_scheme_or_a_host_are_refused(endpoint: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not the endpoint of an S3 store: write http://host:port"):
        open_store(StoreAddress("s3://bucket", endpoint_url=endpoint), SystemClock())
