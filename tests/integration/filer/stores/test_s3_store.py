import asyncio
import base64
import contextlib
import hashlib
import time
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest
from botocore.loaders import JSONFileLoader

from filer.clock import SystemClock
from filer.errors import InvalidInput, OutcomeUnknown, StoreCannotFence, StoreError, StoreRefused, StoreUnreached
from filer.keys import FileName
from filer.segment.next_file import NextFile
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_log import SegmentRef, put_until_known
from filer.stores.fence_check import check_fencing
from filer.stores.s3 import s3_store
from filer.stores.s3.s3_body import PIECE_BYTES
from filer.stores.s3.s3_settings import S3Settings
from filer.stores.s3.s3_store import LARGEST_PUT_BYTES, S3Store
from filer.stores.store_address import AddressingStyle
from tests.support.broker.scripted_http import answer, path_of, scripted_server
from tests.support.net.tcp_proxy import Direction, TcpProxy
from tests.support.process.processes import free_port
from tests.support.store import rclone_server

ABC_SHA256 = hashlib.sha256(b"abc").hexdigest()


@pytest.fixture
async def store(s3_endpoint: str, s3_bucket: str) -> AsyncIterator[S3Store]:
    made = S3Store(S3Settings(s3_bucket, prefix="pre/fix", endpoint_url=s3_endpoint), clock=SystemClock())
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def opened(settings: S3Settings) -> AsyncIterator[S3Store]:
    store = S3Store(settings, clock=SystemClock())
    try:
        yield store
    finally:
        await store.close()


async def connect(store: S3Store) -> None:
    """Have it made its client, which takes long on a busy machine, before time-outs are tried."""
    for _ in range(50):
        with contextlib.suppress(OutcomeUnknown):
            await store.presign_get("key", expires_seconds=1)
            return


def signed_headers(url: str) -> list[str]:
    return parse_qs(urlsplit(url).query)["X-Amz-SignedHeaders"][0].split(";")


async def test_a_process_reads_what_botocore_knows_of_s3_once(
    s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = S3Settings(s3_bucket, endpoint_url=s3_endpoint)
    async with opened(settings) as first:
        await connect(first)
    read: list[str] = []
    monkeypatch.setattr(JSONFileLoader, "load_file", lambda _, path: read.append(path))
    async with opened(settings) as second:
        await connect(second)
        assert [each async for each in second.list("")] == []
    assert read == []


async def test_presigned_create_writes_once(store: S3Store) -> None:
    before_us = time.time_ns() // 1000
    request = await store.presign_create("uploads/x y", size_bytes=3, sha256=ABC_SHA256, expires_seconds=60)
    assert request is not None
    assert request.method == "PUT"
    assert before_us <= request.expires_us - 60_000_000 <= time.time_ns() // 1000
    assert request.headers == {
        "Content-Length": "3",
        "If-None-Match": "*",
        "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(ABC_SHA256)).decode(),
    }
    # What is signed cannot be left out or changed by whoever uses the URL.
    assert signed_headers(request.url) == ["content-length", "host", "if-none-match", "x-amz-checksum-sha256"]
    assert "X-Amz-Expires=60" in request.url
    async with httpx.AsyncClient() as client:
        first = await client.put(request.url, content=b"abc", headers=dict(request.headers))
        second = await client.put(request.url, content=b"xyz", headers=dict(request.headers))
    assert (first.status_code, second.status_code) == (200, 412)
    assert (await store.get("uploads/x y")).data == b"abc"


async def test_presigned_create_without_checksum(store: S3Store) -> None:
    request = await store.presign_create("uploads/key", size_bytes=3, sha256=None, expires_seconds=60)
    assert request is not None
    assert signed_headers(request.url) == ["content-length", "host", "if-none-match"]
    assert dict(request.headers) == {"Content-Length": "3", "If-None-Match": "*"}


async def test_presigned_create_refuses_what_cannot_be(store: S3Store) -> None:
    with pytest.raises(InvalidInput, match="up to 5 GiB"):
        await store.presign_create("key", size_bytes=LARGEST_PUT_BYTES + 1, sha256=None, expires_seconds=60)
    for sha256 in ("", "zz", ABC_SHA256[:-2]):
        with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
            await store.presign_create("key", size_bytes=1, sha256=sha256, expires_seconds=60)


async def test_presigned_get(store: S3Store) -> None:
    await store.create("folder/a b", b"hello")
    request = await store.presign_get("folder/a b", expires_seconds=60)
    assert request is not None
    async with httpx.AsyncClient() as client:
        assert (await client.get(request.url, headers=dict(request.headers))).content == b"hello"


@pytest.mark.parametrize(
    ("style", "start"),
    [
        ("path", "https://s3.example.com/bucket/pre/key?"),
        ("virtual", "https://bucket.s3.example.com/pre/key?"),
    ],
)
async def test_addressing_style(s3_endpoint: str, style: AddressingStyle, start: str) -> None:
    settings = S3Settings(
        "bucket",
        prefix="pre",
        endpoint_url="https://s3.example.com",
        addressing_style=style,
    )
    async with opened(settings) as store:
        request = await store.presign_get("key", expires_seconds=60)
        assert request is not None
        assert request.url.startswith(start)
        assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in request.url


async def test_prefixes_keep_apart(s3_endpoint: str, s3_bucket: str, store: S3Store) -> None:
    await store.create("key", b"x")
    async with opened(S3Settings(s3_bucket, endpoint_url=s3_endpoint)) as bare:
        assert [info.key async for info in bare.list("")] == ["pre/fix/key"]
        await bare.create("pre/fix2/key", b"y")
    assert [info.key async for info in store.list("")] == ["key"]
    assert store.uri("a/segment=1/x") == f"s3://{s3_bucket}/pre/fix/a/segment=1/x"


async def test_missing_bucket_is_refused(s3_endpoint: str) -> None:
    async with opened(S3Settings("no-such-bucket", endpoint_url=s3_endpoint)) as store:
        for call in (lambda: store.create("key", b""), lambda: store.get("key"), lambda: store.delete(["key"])):
            with pytest.raises(StoreRefused, match="no such bucket"):
                await call()
        with pytest.raises(StoreRefused, match="no such bucket"):
            await anext(store.list(""))


async def test_missing_credentials_are_explained(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    async with opened(S3Settings("bucket", endpoint_url=s3_endpoint)) as store:
        with pytest.raises(StoreRefused, match="AWS_ACCESS_KEY_ID"):
            await store.create("key", b"")


async def test_nobody_at_the_endpoint_is_unknown(s3_endpoint: str) -> None:
    async with opened(S3Settings("bucket", endpoint_url="http://127.0.0.1:1")) as store:
        with pytest.raises(OutcomeUnknown, match=r"http://127\.0\.0\.1:1"):
            await store.create("key", b"")


def error_body(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>about it</Message></Error>"


@pytest.mark.parametrize(
    ("status", "code", "kind", "complaint"),
    [
        (409, "ConditionalRequestConflict", OutcomeUnknown, "409"),
        (500, "InternalError", OutcomeUnknown, "500"),
        (503, "SlowDown", OutcomeUnknown, "503"),
        (429, "TooManyRequests", OutcomeUnknown, "429"),
        (400, "RequestTimeout", OutcomeUnknown, "RequestTimeout"),
        (400, "InvalidArgument", StoreRefused, "about it"),
        (403, "AccessDenied", StoreRefused, "s3:PutObject"),
        (403, "SignatureDoesNotMatch", StoreRefused, "SignatureDoesNotMatch: .*AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", StoreRefused, "clock of this machine is off: run a time service .NTP.$"),
        (403, "InvalidAccessKeyId", StoreRefused, "AWS_ACCESS_KEY_ID"),
        (400, "ExpiredToken", StoreRefused, "have expired"),
        (403, "Other", StoreRefused, "their expiry, and the clock"),
        (501, "NotImplemented", StoreRefused, "If-None-Match"),
    ],
)
async def test_answers_are_told_apart_and_nothing_is_sent_twice(
    s3_endpoint: str, status: int, code: str, kind: type[StoreError], complaint: str
) -> None:
    async with scripted_server(lambda head: answer(status, error_body(code))) as server:
        async with opened(S3Settings("bucket", endpoint_url=server.url)) as store:
            with pytest.raises(kind, match=complaint):
                await store.create("key", b"data", metadata={"braidmq-writer": "me"})
        puts = [head for head in server.heads if path_of(head) == "/bucket/key"]
        # Where the checksum may be why, nothing was stored, and it is left out.
        expected = [True, False] if code in {"InvalidArgument", "NotImplemented"} else [True]
        assert [has_checksum(put) for put in puts] == expected
        assert all("if-none-match: *\r\n" in put.lower() for put in puts)
        assert all("x-amz-meta-braidmq-writer: me\r\n" in put.lower() for put in puts)


def has_checksum(head: str) -> bool:
    return "x-amz-checksum-crc32: " in head.lower()


async def test_a_store_without_checksums_gets_puts_without_them(s3_endpoint: str) -> None:
    """Found out by the first put; the others are sent once."""

    def respond(head: str) -> bytes:
        return answer(501, error_body("NotImplemented")) if has_checksum(head) else answer(200, ETag='"e"')

    async with scripted_server(respond) as server, opened(S3Settings("bucket", endpoint_url=server.url)) as store:
        await store.create("one", b"data")
        await store.create("two", b"data")
        assert await store.replace("two", b"more", etag="e") == "e"
        puts = [(path_of(head), has_checksum(head)) for head in server.heads if head.startswith("PUT")]
    assert puts == [("/bucket/one", True), ("/bucket/one", False), ("/bucket/two", False), ("/bucket/two", False)]


async def test_a_checksum_that_does_not_fit_is_not_left_out(s3_endpoint: str) -> None:
    async with scripted_server(lambda head: answer(400, error_body("BadDigest"))) as server:
        async with opened(S3Settings("bucket", endpoint_url=server.url)) as store:
            with pytest.raises(StoreRefused, match="BadDigest"):
                await store.create("key", b"data")
        assert [has_checksum(head) for head in server.heads] == [True]


async def test_a_store_that_has_taken_a_checksum_gets_no_put_without_one(s3_endpoint: str) -> None:
    answers = [answer(200, ETag='"e"'), answer(400, error_body("InvalidRequest"))]
    async with scripted_server(lambda head: answers.pop(0)) as server:
        async with opened(S3Settings("bucket", endpoint_url=server.url)) as store:
            await store.create("one", b"data")
            with pytest.raises(StoreRefused, match="InvalidRequest"):
                await store.create("two", b"data")
        assert [has_checksum(head) for head in server.heads] == [True, True]


@pytest.mark.parametrize("size_bytes", [3, 3_000_000])
async def test_the_checksum_is_that_of_the_bytes(s3_endpoint: str, size_bytes: int) -> None:
    data = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
    async with scripted_server(lambda head: answer(200, ETag='"e"')) as server:
        async with opened(S3Settings("bucket", endpoint_url=server.url)) as store:
            await store.create("key", lambda: memoryview(data))
        (put,) = server.heads
    checksum = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    assert f"x-amz-checksum-crc32: {checksum}\r\n".lower() in put.lower()


async def test_wrong_region_is_explained(s3_endpoint: str) -> None:
    def respond(head: str) -> bytes:
        if head.startswith("HEAD"):
            return answer(200, x_amz_bucket_region="eu-west-1")
        return answer(301, error_body("PermanentRedirect"))

    async with (
        scripted_server(respond) as server,
        opened(S3Settings("bucket", endpoint_url=server.url)) as store,
    ):
        with pytest.raises(StoreRefused, match="in another region"):
            await store.create("key", b"data")


@pytest.mark.parametrize("said", [None, b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"nonsense\r\n\r\n"])
async def test_lost_answers_are_unknown_and_nothing_is_sent_twice(s3_endpoint: str, said: bytes | None) -> None:
    def respond(head: str) -> bytes | None:
        return said

    async with scripted_server(respond) as server:
        # On a busy machine a request may take half a second to be sent, and must be sent within its time-out.
        settings = S3Settings("bucket", endpoint_url=server.url, request_timeout_seconds=2)
        async with opened(settings) as store:
            await connect(store)
            calls: list[Coroutine[Any, Any, object]] = [
                store.create("key", b"data"),
                store.replace("key", b"data", etag="x"),
                store.get("key"),
                store.delete(["key"]),
            ]
            for call in calls:
                with pytest.raises(OutcomeUnknown):
                    await asyncio.wait_for(call, 10)
        assert [head.partition(" ")[0] for head in server.heads] == ["PUT", "PUT", "GET", "POST"]


async def test_answer_that_never_ends_is_unknown(s3_endpoint: str) -> None:
    """Each byte comes within the HTTP client's own time-out, all of them together do not."""
    async with scripted_server(lambda head: answer(200, "x" * 10_000), trickle_seconds=0.05) as server:
        settings = S3Settings("bucket", endpoint_url=server.url, request_timeout_seconds=0.5)
        async with opened(settings) as store:
            await connect(store)
            for call in (store.get("key"), store.create("key", b"data")):
                with pytest.raises(OutcomeUnknown, match="no answer in time"):
                    await asyncio.wait_for(call, 5)


async def test_kept_connection_that_broke_does_not_send_twice(s3_endpoint: str) -> None:
    answers = iter([answer(200, ETag='"1"'), b""])
    async with scripted_server(lambda head: next(answers, b"")) as server:
        async with opened(S3Settings("bucket", endpoint_url=server.url)) as store:
            await store.create("one", b"data")
            with pytest.raises(OutcomeUnknown):
                await store.create("two", b"data")
        assert [path_of(head) for head in server.heads] == ["/bucket/one", "/bucket/two"]


@pytest.mark.parametrize(("code", "kind"), [("InternalError", OutcomeUnknown), ("AccessDenied", StoreRefused)])
async def test_objects_that_were_not_deleted_are_told(s3_endpoint: str, code: str, kind: type[StoreError]) -> None:
    body = (
        "<DeleteResult><Error><Key>one</Key><Code>NoSuchKey</Code></Error>"
        f"<Error><Key>two</Key><Code>{code}</Code><Message>about it</Message></Error></DeleteResult>"
    )
    async with (
        scripted_server(lambda head: answer(200, body)) as server,
        opened(S3Settings("bucket", endpoint_url=server.url)) as store,
    ):
        with pytest.raises(kind, match="'two' first: about it"):
            await store.delete(["one", "two"])


async def test_store_that_knows_no_ranges_is_read_whole(s3_endpoint: str) -> None:
    whole = answer(200, "0123456789", ETag='"1"', Last_Modified="Wed, 21 Oct 2026 07:28:00 GMT")
    async with (
        scripted_server(lambda head: whole) as server,
        opened(S3Settings("bucket", endpoint_url=server.url)) as store,
    ):
        fetched = await store.get("key", start=-4)
    assert fetched.data == b"6789"
    assert fetched.info.size_bytes == 10


@pytest.fixture
def rclone_credentials(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", rclone_server.KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", rclone_server.SECRET)


async def test_rclone_is_refused(tmp_path: Path, rclone_credentials: None) -> None:
    (tmp_path / "bucket").mkdir()
    with rclone_server.rclone_server(tmp_path) as url:
        async with opened(S3Settings("bucket", endpoint_url=url, addressing_style="path")) as store:
            with pytest.raises(StoreCannotFence, match="both were told that they did"):
                await check_fencing(store, SystemClock())
            assert [info.key async for info in store.list("")] == []


async def test_presigned_requests_are_bound_to_what_was_signed(tmp_path: Path, rclone_credentials: None) -> None:
    """By a server that checks signatures, which moto does not."""
    (tmp_path / "bucket").mkdir()
    with rclone_server.rclone_server(tmp_path) as url:
        async with opened(S3Settings("bucket", endpoint_url=url, addressing_style="path")) as store:
            await store.create("folder/a b", b"hello")
            read = await store.presign_get("folder/a b", expires_seconds=60)
            write = await store.presign_create("new", size_bytes=3, sha256=ABC_SHA256, expires_seconds=60)
            assert read is not None and write is not None
            unconditional = {k: v for k, v in write.headers.items() if k != "If-None-Match"}
            async with httpx.AsyncClient() as client:
                got = await client.get(read.url)
                elsewhere = await client.get(read.url.replace("/bucket/folder/a%20b", "/bucket/other"))
                longer = await client.put(write.url, content=b"abcd", headers={**write.headers, "Content-Length": "4"})
                free = await client.put(write.url, content=b"abc", headers=unconditional)
                put = await client.put(write.url, content=b"abc", headers=dict(write.headers))
            assert (got.status_code, got.content) == (200, b"hello")
            assert [answer.status_code for answer in (elsewhere, longer, free)] == [403, 403, 403]
            assert put.status_code == 200
            assert (await store.get("new")).data == b"abc"


async def test_bodies_are_sent_in_large_pieces(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By lines, as the session would send it, or as a whole a large file would keep the event loop for long."""
    sent: list[bytes] = []

    async def noted(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        async for piece in body:
            sent.append(piece)
            yield piece

    class Noting(httpx2.AsyncClient):
        def build_request(self, *args: Any, **options: Any) -> httpx2.Request:
            if body := options["content"]:
                options["content"] = noted(body)
            return super().build_request(*args, **options)

    monkeypatch.setattr(httpx2, "AsyncClient", Noting)
    lines = b"a line\n" * (PIECE_BYTES // 7) + b"an end"
    await store.create("lines", lines)
    assert sent == [lines[:PIECE_BYTES], lines[PIECE_BYTES:]]
    await store.replace("lines", 2 * lines, etag=(await store.head("lines")).etag)
    assert (await store.get("lines")).data == 2 * lines == b"".join(sent[2:])
    assert max(map(len, sent)) == PIECE_BYTES


async def test_requests_that_are_cancelled_cost_no_connection(s3_endpoint: str, s3_bucket: str) -> None:
    """Many more than there are connections, so that each that ends hands its own to one that ends as well."""
    settings = S3Settings(s3_bucket, endpoint_url=s3_endpoint, pool_size=2)
    async with opened(settings) as store:
        await connect(store)
        for turns in range(12):
            asked = [asyncio.create_task(store.get("nothing")) for _ in range(10)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        async with asyncio.timeout(30):
            await store.create("key", b"data")
            assert (await store.get("key")).data == b"data"


@contextlib.asynccontextmanager
async def through(proxy: TcpProxy, bucket: str, **settings: float) -> AsyncIterator[S3Store]:
    """A store behind the proxy, which has kept a connection that hangs from now on."""
    settings = {"resend_seconds": 0.3, **settings}
    async with opened(S3Settings(bucket, endpoint_url=f"http://{proxy.address}", **settings)) as store:
        await store.create("known", b"abc")
        yield store


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[TcpProxy]:
    parts = urlsplit(s3_endpoint)
    assert parts.hostname is not None and parts.port is not None
    with TcpProxy(parts.hostname, parts.port) as running:
        yield running


@pytest.mark.parametrize("direction", ["requests", "answers"])
async def test_a_put_on_a_connection_that_hangs_goes_out_on_a_new_one_and_is_known_as_its_own(
    proxy: TcpProxy, s3_bucket: str, direction: Direction
) -> None:
    """Where only the answer was lost, the second one finds the name taken: by the first."""
    clock, segment = SystemClock(), SegmentRef("t", 1)
    file = NextFile(segment, [], 0, f"broker/{clock.ulid()}", "")
    file.seal_with(ProducerWindows(), 0, 0)
    async with through(proxy, s3_bucket) as store:
        proxy.hang(direction=direction)
        async with asyncio.timeout(20):
            assert await put_until_known(store, clock, segment.key(FileName(0)), file, file.writer)
        assert (await store.get(segment.key(FileName(0)))).data == bytes(file())


async def test_reads_on_a_connection_that_hangs_go_out_on_a_new_one(proxy: TcpProxy, s3_bucket: str) -> None:
    reads: list[Callable[[S3Store], Awaitable[object]]] = [
        lambda store: store.get("known"),
        lambda store: store.head("known"),
        lambda store: store.tell_time(),
        lambda store: store.list_folders(""),
    ]
    async with through(proxy, s3_bucket) as store:
        for read in reads:
            proxy.hang()
            async with asyncio.timeout(20):
                await read(store)
            await store.head("known")  # a connection that is kept


@pytest.mark.parametrize("call", ["create", "replace"])
async def test_a_write_that_its_writer_would_not_recognise_is_never_sent_twice(
    proxy: TcpProxy, s3_bucket: str, call: str
) -> None:
    async with through(proxy, s3_bucket, request_timeout_seconds=2) as store:
        etag = (await store.head("known")).etag
        proxy.hang()
        accepted = proxy.accepted
        with pytest.raises(OutcomeUnknown):
            await (store.create("new", b"") if call == "create" else store.replace("known", b"", etag=etag))
        assert proxy.accepted == accepted


@pytest.mark.parametrize("call", ["create", "replace"])
async def test_a_write_that_goes_out_once_is_given_up_long_before_its_time_out(
    proxy: TcpProxy, s3_bucket: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked finds out what came of it on another connection, while others still wait for the answer."""
    monkeypatch.setattr(s3_store, "ONCE_SECONDS", 0.3)
    async with through(proxy, s3_bucket, request_timeout_seconds=60) as store:
        etag = (await store.head("known")).etag
        proxy.hang()
        async with asyncio.timeout(20):
            with pytest.raises(OutcomeUnknown):
                await (store.create("new", b"") if call == "create" else store.replace("known", b"", etag=etag))


async def test_a_stream_that_gets_no_connection_has_certainly_stored_nothing(s3_endpoint: str, s3_bucket: str) -> None:
    """It is told so soon. Of what has not begun to come, no connection is taken."""
    goes_on = asyncio.Event()

    async def stalling(begin: bytes, rest: bytes) -> AsyncIterator[bytes]:
        for chunk in (begin[:1], begin[1:]):
            yield chunk
        await goes_on.wait()
        yield rest

    async def put(store: S3Store, key: str, chunks: AsyncIterator[bytes]) -> None:
        await store.create_from_stream(key, chunks, size_bytes=6, sha256=None)

    async def whole() -> AsyncIterator[bytes]:
        yield b"abcdef"

    settings = S3Settings(s3_bucket, endpoint_url=s3_endpoint, pool_size=1)
    async with opened(settings) as store, asyncio.TaskGroup() as group:
        assert store.traits.streams_at_once == 1
        group.create_task(put(store, "late", stalling(b"", b"abcdef")))
        await put(store, "before", whole())
        group.create_task(put(store, "slow", stalling(b"abc", b"def")))
        while True:
            # The slow one has the connection as soon as another is refused.
            try:
                await put(store, f"tried-{time.monotonic_ns()}", whole())
            except StoreUnreached as error:
                assert "PoolTimeout" in str(error)
                break
        assert [each.key async for each in store.list("slow")] == []
        goes_on.set()
    async with opened(settings) as store:
        assert (await store.get("slow")).data == (await store.get("late")).data == b"abcdef"

    async with opened(S3Settings("bucket", endpoint_url=f"http://127.0.0.1:{free_port()}")) as nowhere:
        with pytest.raises(StoreUnreached, match="ConnectError"):
            await put(nowhere, "key", whole())
