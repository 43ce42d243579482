"""Payloads by reference, from the upload to the reader, on a local directory and on S3."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.clock import SystemClock
from filer.stores.decorators.instrumented_store import InstrumentedStore
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.local.local_store import LocalStore
from filer.stores.open_store import open_store
from filer.stores.store_address import StoreAddress
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.token_maker import TokenMaker

MIB = 1024 * 1024
UPLOADS = "/v1/topics/t/uploads"
MESSAGES = "/v1/topics/t/messages"


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[HttpBroker]:
    async with http_broker(LocalStore(tmp_path / "data", clock=SystemClock())) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        yield broker


@pytest.fixture
async def s3(s3_endpoint: str, s3_bucket: str) -> AsyncIterator[HttpBroker]:
    store = open_store(StoreAddress(f"s3://{s3_bucket}/prefix", s3_endpoint), SystemClock())
    async with http_broker(store, store=f"s3://{s3_bucket}/prefix") as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        yield broker


async def issue(broker: HttpBroker, data: bytes, **fields: Any) -> dict[str, Any]:
    answer = await broker.client.post(UPLOADS, json={"size": len(data), **fields})
    assert answer.status_code == 201, answer.text
    upload = dict(answer.json())
    assert upload.keys() == {"upload", "url", "method", "headers", "expires", "value_type"}
    assert upload["method"] == "PUT"
    return upload


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def put(upload: dict[str, Any], data: bytes) -> httpx.Response:
    """As anybody would: with nothing but what the answer said."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        return await client.put(upload["url"], content=data, headers=upload["headers"])


async def publish(broker: HttpBroker, upload: dict[str, Any], **claim: Any) -> dict[str, Any]:
    body = {"messages": [{"key": "k", "ref": {"upload": upload["upload"], **claim}, "headers": {"a": "b"}}]}
    answer = await broker.client.post(MESSAGES, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["positions"][0])


async def test_from_upload_to_reader_on_a_directory(local: HttpBroker) -> None:
    data = os.urandom(3 * MIB + 17)
    upload = await issue(local, data, sha256=sha256(data))
    assert upload["url"] == f"{local.url}{UPLOADS}/{upload['upload']}"
    stored = await put(upload, data)
    assert stored.status_code == 201
    assert stored.json() | {"etag": ""} == {
        "upload": upload["upload"],
        "size": len(data),
        "sha256": sha256(data),
        "etag": "",
    }
    claim = {"size": len(data), "etag": stored.json()["etag"], "sha256": sha256(data)}
    position = await publish(local, upload, **claim)
    assert position == {"segment": 0, "offset": 0, "count": 1}
    message = (await local.client.get(f"{MESSAGES}/0-0")).json()
    assert "value" not in message
    assert message["ref"] == {
        "uri": f"uploads/{upload['upload']}",
        "size": len(data),
        "etag": stored.json()["etag"],
        "sha256": sha256(data),
        "url": f"{MESSAGES}/0-0/payload",
    }
    payload = await local.client.get(message["ref"]["url"])
    assert payload.content == data
    assert payload.headers["content-length"] == str(len(data))
    assert payload.headers["etag"] == f'"{stored.json()["etag"]}"'
    assert (await local.client.get(MESSAGES)).json()["messages"] == [message]


async def test_payloads_are_read_in_pieces(tmp_path: Path) -> None:
    """However large a payload is, the broker holds a mebibyte of it."""
    directory = LocalStore(tmp_path / "data", clock=SystemClock())
    reads: list[int] = []

    class Watched(InstrumentedStore):
        async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Any:
            fetched = await super().get(key, start=start, stop=stop)
            if "/uploads/" in key:
                reads.append(len(fetched.data))
            return fetched

    store = Watched(directory, clock=SystemClock(), metrics=StoreMetrics())
    async with http_broker(store, payloads=directory) as broker:
        await broker.client.put("/v1/topics/t")
        data = os.urandom(5 * MIB + 1)
        upload = await issue(broker, data)
        assert (await put(upload, data)).status_code == 201
        await publish(broker, upload)
        assert (await broker.client.get(f"{MESSAGES}/0-0/payload")).content == data
    assert reads == [MIB] * 5 + [1]


async def test_what_is_put_must_be_what_was_declared(local: HttpBroker) -> None:
    upload = await issue(local, b"data", sha256=sha256(b"data"))
    for wrong in (b"dat", b"data!", b""):
        check_problem(await put(upload, wrong), 422, "invalid-reference", "declared with 4 bytes")
    check_problem(await put(upload, b"atad"), 422, "invalid-request", "SHA-256")

    async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    for parts in ((b"da", b"t"), (b"da", b"ta", b"!"), (b"x" * MIB,) * 8):
        answer = await local.client.put(upload["url"], content=chunks(*parts))
        check_problem(answer, 422, "invalid-request", "announced", "4")
    answer = await local.client.post(MESSAGES, json={"messages": [{"ref": {"upload": upload["upload"]}}]})
    check_problem(answer, 422, "invalid-reference", "has not arrived")
    assert (await local.client.put(upload["url"], content=chunks(b"da", b"ta"))).status_code == 201
    check_problem(await put(upload, b"data"), 409, "upload-exists", "written already")
    await publish(local, upload)


async def test_ids_that_were_not_issued(local: HttpBroker) -> None:
    upload = await issue(local, b"data")
    await local.client.put("/v1/topics/other")
    for path in (f"{UPLOADS}/x", f"{UPLOADS}/{upload['upload']}A", f"/v1/topics/other/uploads/{upload['upload']}"):
        answer = await local.client.put(path, content=b"data")
        check_problem(answer, 422, "invalid-request", "was not issued for topic")
    assert [info async for info in local.broker.store.list("topics/other/uploads/")] == []
    assert [info async for info in local.broker.store.list("topics/t/uploads/")] == []


async def test_upload_broken_off_leaves_its_id_free(local: HttpBroker) -> None:
    upload = await issue(local, b"data" * 1000)
    head = f"PUT {UPLOADS}/{upload['upload']} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\ndata"
    reader, writer = await asyncio.open_connection("127.0.0.1", local.port)
    writer.write(head.encode())
    await writer.drain()
    writer.close()
    assert await reader.read() == b""
    assert (await put(upload, b"data" * 1000)).status_code == 201


async def test_empty_payload(local: HttpBroker) -> None:
    upload = await issue(local, b"", sha256=sha256(b""))
    assert (await put(upload, b"")).status_code == 201
    await publish(local, upload)
    assert (await local.client.get(f"{MESSAGES}/0-0/payload")).content == b""


async def test_values_are_payloads_too(local: HttpBroker) -> None:
    body = {"messages": [{"value": "text"}, {"value": None}, {"value_base64": "/w=="}, {"value": {"a": 1}}]}
    await local.client.post(MESSAGES, json=body)
    payloads = [(await local.client.get(f"{MESSAGES}/0-{n}/payload")).content for n in range(4)]
    assert payloads == [b"text", b"", b"\xff", b'{"a":1}']


async def test_references_by_arrow(local: HttpBroker) -> None:
    upload = await issue(local, b"data")
    await put(upload, b"data")
    table = pa.table({"value": pa.array([b"a", None], pa.binary()), "ref": [None, {"upload": upload["upload"]}]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    answer = await local.client.post(MESSAGES, content=bytes(sink.getvalue()), headers=headers)
    assert answer.json() == {"positions": [{"segment": 0, "offset": 0, "count": 2}]}
    read = await local.client.get(MESSAGES, headers={"accept": headers["content-type"]})
    refs = pa.ipc.open_stream(read.content).read_all()["_ref"].to_pylist()
    assert refs[0] is None
    assert refs[1]["uri"] == f"uploads/{upload['upload']}"


async def test_from_upload_to_reader_on_s3(s3: HttpBroker) -> None:
    data = os.urandom(MIB + 1)
    upload = await issue(s3, data, sha256=sha256(data))
    assert not upload["url"].startswith(s3.url)
    answer = await put(upload, data)
    assert answer.status_code == 200, answer.text
    assert (await put(upload, data)).status_code == 412
    position = await publish(s3, upload, size=len(data), sha256=sha256(data))
    message = (await s3.client.get(f"{MESSAGES}/{position['segment']}-{position['offset']}")).json()
    assert message["ref"]["size"] == len(data)
    redirect = await s3.client.get(message["ref"]["url"])
    assert redirect.status_code == 307
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(redirect.headers["location"])).content == data
    check_problem(await s3.client.put(f"{UPLOADS}/{upload['upload']}", content=data), 404, "upload-not-found", "URL")


@pytest.mark.parametrize("size_bytes", [0, 3 * MIB + 17])
async def test_who_may_not_see_the_topic_group_of_a_member_sends_payloads_to_the_broker(
    s3_endpoint: str, s3_bucket: str, tmp_path: Path, size_bytes: int
) -> None:
    """The store's own address has the group's name in it. Whoever may see that gets it, and sends nothing here."""
    maker = TokenMaker(now_seconds=SystemClock().now_us() / 1e6)
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    store = open_store(StoreAddress(f"s3://{s3_bucket}/prefix", s3_endpoint), SystemClock())
    everything, member = ({"authorization": f"Bearer {maker.token(grant)}"} for grant in ("topic:*:*", "topic:t:*"))
    data = os.urandom(size_bytes)
    async with http_broker(store, authorizer="tokens", token_keys=tmp_path / "keys.json", audit="off") as broker:
        client = broker.client
        (await client.put("/v1/topic-groups/hush", json={"topics": ["t"]}, headers=everything)).raise_for_status()
        known = (await client.post(UPLOADS, json={"size": size_bytes}, headers=everything)).json()
        assert known["url"].startswith(s3_endpoint)
        refused = await client.put(f"{UPLOADS}/{known['upload']}", content=data, headers=everything)
        check_problem(refused, 404, "upload-not-found", "URL")

        wanted = {"size": size_bytes, "sha256": sha256(data)}
        issued = (await client.post(UPLOADS, json=wanted, headers=member)).json()
        assert issued["url"] == f"{broker.url}{UPLOADS}/{issued['upload']}" and issued["headers"] == {}
        path = f"{UPLOADS}/{issued['upload']}"
        if data:
            refused = await client.put(path, content=bytes(size_bytes), headers=member)
            assert "hush" not in check_problem(refused, 422, "invalid-request", "SHA-256 is")["detail"]
        stored = await client.put(path, content=data, headers=member)
        assert stored.status_code == 201 and stored.json()["sha256"] == sha256(data)
        refused = await client.put(path, content=data, headers=member)
        assert "hush" not in check_problem(refused, 409, "upload-exists")["detail"]
        rows = {"messages": [{"key": "k", "ref": {"upload": issued["upload"]}}]}
        (await client.post(MESSAGES, json=rows, headers=member)).raise_for_status()
        read = await client.get(f"{MESSAGES}/0-0/payload", headers=member)
        assert (read.status_code, read.content) == (200, data)


async def test_slow_uploads_of_one_principal_leave_connections_to_others_on_s3(
    s3_endpoint: str, s3_bucket: str, tmp_path: Path
) -> None:
    """Whoever has its share is told so at once. A body of which next to nothing has come has no part in it."""
    maker = TokenMaker(now_seconds=SystemClock().now_us() / 1e6)
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    store = open_store(StoreAddress(f"s3://{s3_bucket}/prefix", s3_endpoint), SystemClock())

    def bearer(name: str, grant: str = "topic:t:*") -> dict[str, str]:
        return {"authorization": f"Bearer {maker.token(grant, sub=name)}"}

    async with http_broker(store, authorizer="tokens", token_keys=tmp_path / "keys.json", audit="off") as broker:
        client, streams, goes_on = broker.client, broker.broker.upload_streams, asyncio.Event()
        await client.put("/v1/topic-groups/hush", json={"topics": ["t"]}, headers=bearer("ada", "topic:*:*"))

        async def path(size_bytes: int) -> str:
            issued = await client.post(UPLOADS, json={"size": size_bytes}, headers=bearer("slow"))
            return f"{UPLOADS}/{issued.raise_for_status().json()['upload']}"

        async def slow(size_bytes: int, begin_bytes: int) -> int:
            async def body() -> AsyncIterator[bytes]:
                yield bytes(begin_bytes)
                await goes_on.wait()
                yield bytes(size_bytes - begin_bytes)

            return (await client.put(await path(size_bytes), content=body(), headers=bearer("slow"))).status_code

        assert streams.share == 10
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            stalled = [group.create_task(slow(MIB, 1)) for _ in range(3)]
            sent = [group.create_task(slow(MIB, MIB // 2)) for _ in range(10)]
            while streams.count < 10:
                await asyncio.sleep(0.01)
            refused = await client.put(await path(10), content=bytes(10), headers=bearer("slow"))
            problem = check_problem(refused, 429, "too-many-uploads", "10 payloads of this principal")
            assert problem["retryable"] and refused.headers["retry-after"] == "1" and "hush" not in refused.text
            served = await client.put(await path(10), content=bytes(10), headers=bearer("bob"))
            assert (served.status_code, streams.count) == (201, 10)
            for task in stalled:
                task.cancel()
            goes_on.set()
        assert [task.result() for task in sent] == [201] * 10 and streams.count == 0


async def test_files_on_s3_are_presigned(s3: HttpBroker) -> None:
    await s3.client.post(MESSAGES, content=b"1")
    (file,) = (await s3.client.get("/v1/topics/t/files")).json()["files"]
    assert file["uri"].startswith("s3://")
    async with httpx.AsyncClient(trust_env=False) as client:
        parquet = (await client.get(file["url"])).content
    assert len(parquet) == file["bytes"]
    assert pq.read_table(pa.BufferReader(parquet))["value"].to_pylist() == [b"1"]
