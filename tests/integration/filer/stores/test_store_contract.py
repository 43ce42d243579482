"""What every store must do, whatever is behind it."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from filer.clock import SystemClock
from filer.errors import EtagMismatch, InvalidInput, ObjectExists, ObjectNotFound, StoreRefused
from filer.stores.fence_check import check_fencing
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from filer.stores.s3.s3_settings import S3Settings
from filer.stores.s3.s3_store import S3Store
from filer.stores.store import Store, StreamingStore

# In the order of their UTF-8 bytes, where `-` and `.` come before `/`.
ORDERED = [
    "a-b/x",
    "a.b",
    "a/b",
    "a/b-c/x",
    "a/b.c",
    "a/b0",
    "a/bb/c/d",
    "a/bb/c0",
    "a/segment=10/00000000000000000000-00000000000000000002.parquet",
    "a/segment=10/00000000000000000000.parquet",
    "a/segment=2/00000000000000000001.parquet",
    "a0",
    "b c/%41+&",
    "z",
    "é/ü",
    "日本",
    "\U0001f600",
]


@pytest.fixture(params=["memory", "local", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    clock = SystemClock()
    made: Store
    if request.param == "memory":
        made = MemoryStore(clock=clock)
    elif request.param == "local":
        made = LocalStore(tmp_path / "root", clock=clock)
    else:
        bucket = request.getfixturevalue("s3_bucket")
        endpoint = request.getfixturevalue("s3_endpoint")
        made = S3Store(S3Settings(bucket, prefix="some/where", endpoint_url=endpoint), clock=clock)
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("filer.stores.local.local_store", "filer.stores.s3.s3_store"):
        monkeypatch.setattr(f"{name}.LIST_PAGE", 3)
        monkeypatch.setattr(f"{name}.DELETE_PAGE", 3)


async def keys_of(store: Store, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> list[str]:
    return [info.key async for info in store.list(prefix, after=after, limit=limit)]


async def chunked(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize("data", [b"", b"some bytes", bytearray(b"array"), memoryview(b"view")])
async def test_created_object_reads_back(store: Store, data: bytes) -> None:
    before_us = time.time_ns() // 1000
    await store.create("folder/key", data, metadata={"braidmq-writer": "me"})
    fetched = await store.get("folder/key")
    assert fetched.data == bytes(data)
    assert fetched.info == await store.head("folder/key")
    assert fetched.info.key == "folder/key"
    assert fetched.info.size_bytes == len(data)
    # S3 tells whole seconds only, a file system the last tick.
    assert before_us - 1_100_000 <= fetched.info.modified_us <= time.time_ns() // 1000 + 1_000_000
    assert [fetched.info] == [info async for info in store.list("")]


async def test_create_refuses_existing_name_whoever_asks(store: Store) -> None:
    await store.create("key", b"first")
    for data in (b"second", b"first"):
        with pytest.raises(ObjectExists):
            await store.create("key", data)
    assert (await store.get("key")).data == b"first"


async def test_of_many_creates_one_wins(store: Store) -> None:
    bodies = [f"writer {number}".encode() for number in range(16)]
    results = await asyncio.gather(*(store.create("key", b) for b in bodies), return_exceptions=True)
    winners = [body for body, result in zip(bodies, results, strict=True) if result is None]
    assert len(winners) == 1
    assert sum(isinstance(result, ObjectExists) for result in results) == 15
    assert (await store.get("key")).data == winners[0]


async def test_replace_needs_current_etag(store: Store) -> None:
    await store.create("key", b"first")
    first = (await store.head("key")).etag
    second = await store.replace("key", b"second", etag=first)
    assert second != first
    assert (await store.get("key")).info.etag == second
    with pytest.raises(EtagMismatch):
        await store.replace("key", b"third", etag=first)
    assert (await store.get("key")).data == b"second"
    await store.replace("key", b"third, longer", etag=second)
    assert (await store.get("key")).data == b"third, longer"


async def test_replace_of_missing_object_is_a_mismatch(store: Store) -> None:
    await store.create("key", b"first")
    etag = (await store.head("key")).etag
    await store.delete(["key"])
    for key in ("key", "folder/never"):
        with pytest.raises(EtagMismatch):
            await store.replace(key, b"second", etag=etag)
    assert await keys_of(store) == []


async def test_of_many_replaces_one_wins(store: Store) -> None:
    await store.create("key", b"start")
    etag = (await store.head("key")).etag
    bodies = [f"writer {number}".encode() for number in range(16)]
    calls = (store.replace("key", body, etag=etag) for body in bodies)
    results = await asyncio.gather(*calls, return_exceptions=True)
    winners = [body for body, result in zip(bodies, results, strict=True) if isinstance(result, str)]
    assert len(winners) == 1
    assert sum(isinstance(result, EtagMismatch) for result in results) == 15
    assert (await store.get("key")).data == winners[0]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, None, b"0123456789"),
        (0, 4, b"0123"),
        (4, None, b"456789"),
        (4, 6, b"45"),
        (8, 100, b"89"),
        (-3, None, b"789"),
        (-3, 9, b"78"),
        (-100, None, b"0123456789"),
        (-100, 2, b"01"),
        (10, None, b""),
        (50, 60, b""),
        (3, 3, b""),
        (0, 0, b""),
    ],
)
async def test_get_range(store: Store, start: int, stop: int | None, expected: bytes) -> None:
    await store.create("key", b"0123456789")
    fetched = await store.get("key", start=start, stop=stop)
    assert fetched.data == expected
    assert fetched.info == await store.head("key")


@pytest.mark.parametrize(("start", "stop"), [(0, None), (-5, None), (2, None), (0, 7)])
async def test_get_range_of_empty_object(store: Store, start: int, stop: int | None) -> None:
    await store.create("key", b"")
    fetched = await store.get("key", start=start, stop=stop)
    assert fetched.data == b""
    assert fetched.info.size_bytes == 0


async def test_missing_object_is_not_found(store: Store) -> None:
    await store.create("folder/key", b"x")
    for key in ("key", "folder", "folder/key2", "other/key"):
        with pytest.raises(ObjectNotFound):
            await store.get(key)
        with pytest.raises(ObjectNotFound):
            await store.get(key, start=-3, stop=2)
        with pytest.raises(ObjectNotFound):
            await store.head(key)


async def fill(store: Store, keys: list[str]) -> None:
    for key in reversed(keys):
        await store.create(key, key.encode())


async def test_list_is_in_utf8_order_of_whole_keys(store: Store) -> None:
    assert sorted(ORDERED, key=str.encode) == ORDERED
    await fill(store, ORDERED)
    assert await keys_of(store) == ORDERED
    infos = [info async for info in store.list("")]
    assert [info.size_bytes for info in infos] == [len(key.encode()) for key in ORDERED]


async def test_list_takes_any_prefix(store: Store) -> None:
    await fill(store, ORDERED)
    prefixes = {key[:length] for key in ORDERED for length in range(len(key) + 1)} | {"q", "a/q/", "z/", "日"}
    for prefix in sorted(prefixes if isinstance(store, MemoryStore | LocalStore) else list(prefixes)[::5]):
        assert await keys_of(store, prefix) == [key for key in ORDERED if key.startswith(prefix)], prefix


async def test_list_goes_on_after_any_name(store: Store) -> None:
    await fill(store, ORDERED)
    afters = [*ORDERED, *(key[:-1] for key in ORDERED), *(f"{key}!" for key in ORDERED), "a/", "a/bb/", "a/bb/c/"]
    for after in afters if isinstance(store, MemoryStore | LocalStore) else afters[::3]:
        for prefix in ("", "a/", "a/b", "a/bb/"):
            expected = [key for key in ORDERED if key.startswith(prefix) and (not after or key > after)]
            assert await keys_of(store, prefix, after=after or None) == expected, (prefix, after)


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 7, 100])
async def test_list_gives_up_to_limit(store: Store, limit: int) -> None:
    await fill(store, ORDERED[:8])
    assert await keys_of(store, limit=limit) == ORDERED[:8][:limit]
    assert await keys_of(store, "a/", after="a/b", limit=limit) == ORDERED[3:8][:limit]


async def test_list_folders(store: Store) -> None:
    await fill(store, ORDERED)
    assert list(await store.list_folders("")) == ["a", "a-b", "b c", "é"]
    assert list(await store.list_folders("a/")) == ["b-c", "bb", "segment=10", "segment=2"]
    assert list(await store.list_folders("a/bb/")) == ["c"]
    assert list(await store.list_folders("nothing/")) == []
    await store.delete(["a/bb/c/d", "a/b-c/x"])
    assert list(await store.list_folders("a/")) == ["bb", "segment=10", "segment=2"]
    assert list(await store.list_folders("a/bb/")) == []


async def test_delete(store: Store) -> None:
    await fill(store, ORDERED)
    await store.delete([])
    await store.delete(iter(["never", "a/never", "a", *ORDERED[:7]]))
    assert await keys_of(store) == ORDERED[7:]
    await store.create("a.b", b"again")
    assert (await store.get("a.b")).data == b"again"


BAD_KEYS = [
    "",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/..",
    "./a",
    ".tmp/x",
    "a/.hidden",
    "a\0b",
    "a\ud800",
]


@pytest.mark.parametrize("key", BAD_KEYS)
async def test_bad_keys_are_refused(store: Store, key: str) -> None:
    calls: list[Coroutine[Any, Any, object]] = [
        store.create(key, b"x"),
        store.replace(key, b"x", etag="1"),
        store.get(key),
        store.head(key),
        store.delete([key]),
    ]
    for call in calls:
        with pytest.raises(StoreRefused):
            await call
    with pytest.raises(StoreRefused):
        store.uri(key)
    assert await keys_of(store) == []


@pytest.mark.parametrize("prefix", ["/", "../", "a/../", "a//", "a/.t", "a\0", "a\ud800"])
async def test_bad_prefixes_are_refused(store: Store, prefix: str) -> None:
    with pytest.raises(StoreRefused):
        await keys_of(store, prefix)
    with pytest.raises(StoreRefused):
        await store.list_folders(prefix)


async def test_list_folders_takes_folders_only(store: Store) -> None:
    with pytest.raises(StoreRefused, match="must end in '/'"):
        await store.list_folders("a")


async def test_fence_check_passes_and_leaves_nothing(store: Store) -> None:
    await check_fencing(store, SystemClock())
    assert await keys_of(store) == []


@pytest.fixture
def streaming(store: MemoryStore | LocalStore | S3Store) -> MemoryStore | LocalStore | S3Store:
    return store


@pytest.mark.parametrize("given_sha256", [None, sha256(b"one two").hexdigest(), sha256(b"one two").hexdigest().upper()])
async def test_create_from_stream(streaming: MemoryStore | LocalStore | S3Store, given_sha256: str | None) -> None:
    assert isinstance(streaming, StreamingStore)
    digest = await streaming.create_from_stream(
        "folder/key", chunked(b"one", b"", b" two"), size_bytes=7, sha256=given_sha256
    )
    assert digest == sha256(b"one two").hexdigest()
    assert (await streaming.get("folder/key")).data == b"one two"
    with pytest.raises(ObjectExists):
        await streaming.create_from_stream("folder/key", chunked(b"other"), size_bytes=5, sha256=None)
    assert (await streaming.get("folder/key")).data == b"one two"


@pytest.mark.parametrize(
    ("size_bytes", "given_sha256", "complaint"),
    [
        (6, None, "longer than the 6 bytes"),
        (8, None, "ended after 7 bytes"),
        (0, None, "longer than the 0 bytes"),
        (7, sha256(b"else").hexdigest(), "SHA-256 is"),
    ],
)
async def test_create_from_stream_checks_what_comes(
    streaming: MemoryStore | LocalStore | S3Store, size_bytes: int, given_sha256: str | None, complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        await streaming.create_from_stream("key", chunked(b"one", b" two"), size_bytes=size_bytes, sha256=given_sha256)
    assert await keys_of(streaming) == []


async def test_create_from_broken_stream_stores_nothing(streaming: MemoryStore | LocalStore | S3Store) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"one"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await streaming.create_from_stream("key", breaking(), size_bytes=7, sha256=None)
    assert await keys_of(streaming) == []


@pytest.mark.parametrize("store", ["memory", "local"], indirect=True)
async def test_no_presigning_without_a_server(streaming: MemoryStore | LocalStore) -> None:
    assert await streaming.presign_get("key", expires_seconds=60) is None
    assert await streaming.presign_create("key", size_bytes=1, sha256=None, expires_seconds=60) is None


async def test_every_answer_tells_the_time(store: Store) -> None:
    before_us = SystemClock().now_us()
    told_us = await store.tell_time()
    resolution_us = store.time.resolution_us
    assert before_us - resolution_us <= told_us <= SystemClock().now_us()
    assert store.time.latest_us >= told_us
    await store.create("timed", b"x")
    # No earlier than the name, but for what the store's clock does not show.
    assert store.time.latest_us + resolution_us >= (await store.head("timed")).modified_us
