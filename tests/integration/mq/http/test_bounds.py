"""Issue 2, item 9: memory is bounded, whatever publishers and readers do."""

import asyncio
import contextlib
import gzip
import os
import re
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest

from filer.clock import SystemClock
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.memory_store import MemoryStore
from mq.process.connections.unwanted import STEP_SECONDS
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.socket_client import checked, socket_client
from tests.support.rows.hostile_arrow import zeros_compressed

MIB = 1024 * 1024
ARROW = "application/vnd.apache.arrow.stream"
MESSAGES = "/v1/topics/t/messages"
DEADLINE_SECONDS = 20


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


class Stuck:
    """A broker with 2 MiB of front store, whose store takes segment files only when told to."""

    def __init__(self, broker: HttpBroker, store: FailingStore, faults: ScriptedFaults) -> None:
        self.broker, self.store, self._faults = broker, store, faults

    async def topic(self, overflow: str) -> None:
        (await self.broker.client.put("/v1/topics/t", json={"overflow": overflow})).raise_for_status()

    def hang(self, files: int) -> None:
        self._faults.add("create", *[FaultKind.HANG] * files, key_part="/segments/")

    def publish(self, size_bytes: int) -> "asyncio.Task[httpx.Response]":
        return asyncio.create_task(self.broker.client.post(MESSAGES, content=b"x" * size_bytes))

    @property
    def pending_bytes(self) -> int:
        return self.broker.broker.front_store.pending_bytes


@pytest.fixture
async def stuck() -> AsyncIterator[Stuck]:
    clock, faults = SystemClock(), ScriptedFaults()
    store = FailingStore(MemoryStore(), faults, clock=clock)
    async with http_broker(store, front_store_bytes=2 * MIB, max_body_bytes=MIB) as broker:
        yield Stuck(broker, store, faults)
        store.release()


async def test_publisher_faster_than_the_store_is_told_to_wait(stuck: Stuck) -> None:
    await stuck.topic("reject")
    stuck.hang(1)
    accepted = [stuck.publish(MIB - 1) for _ in range(2)]
    await until(lambda: stuck.store.hung == 1 and stuck.pending_bytes == 2 * MIB - 2)
    for _ in range(5):
        answer = await stuck.broker.client.post(MESSAGES, content=b"x" * 1000)
        problem = check_problem(answer, 429, "front-store-full", str(2 * MIB), "nothing of this request was stored")
        assert problem["retryable"]
        assert int(answer.headers["retry-after"]) >= 1
    stuck.store.release()
    for answer in await asyncio.gather(*accepted):
        answer.raise_for_status()
    assert stuck.pending_bytes == 0
    assert await stuck.broker.end_offsets("t") == {0: 2}
    (await stuck.broker.client.post(MESSAGES, content=b"x" * 1000)).raise_for_status()


async def test_publisher_faster_than_the_store_waits_where_the_topic_says_so(stuck: Stuck) -> None:
    await stuck.topic("block")
    stuck.hang(1)
    tasks = [stuck.publish(MIB - n) for n in range(8)]
    await until(lambda: stuck.store.hung == 1 and stuck.pending_bytes > MIB)
    assert not any(task.done() for task in tasks)
    assert stuck.pending_bytes <= 2 * MIB
    stuck.store.release()
    async with asyncio.timeout(DEADLINE_SECONDS):
        for answer in await asyncio.gather(*tasks):
            answer.raise_for_status()
    assert await stuck.broker.end_offsets("t") == {0: 8}
    assert stuck.pending_bytes == 0


async def chunks(count: int, size_bytes: int, gate: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    for n in range(count):
        if n == count // 2 and gate is not None:
            await gate.wait()
        yield b"x" * size_bytes


async def test_growing_bodies_never_wait_for_each_other(stuck: Stuck) -> None:
    """Four bodies without a length fill the room half-way; if each waited for the others' room, all would for ever."""
    await stuck.topic("block")
    gate = asyncio.Event()
    tasks = [
        asyncio.create_task(stuck.broker.client.post(MESSAGES, content=chunks(8, MIB // 8 - 1, gate))) for _ in range(4)
    ]
    await until(lambda: stuck.pending_bytes == 4 * 4 * (MIB // 8 - 1))
    gate.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        statuses = [answer.status_code for answer in await asyncio.gather(*tasks)]
    assert set(statuses) <= {200, 429}
    assert statuses.count(200) >= 2
    assert stuck.pending_bytes == 0


@pytest.mark.parametrize("overflow", ["reject", "block"])
async def test_body_that_never_fits_is_too_large(overflow: str) -> None:
    """A body limit above the front store's: waiting, or trying again, would never help."""
    async with http_broker(MemoryStore(), front_store_bytes=MIB, max_body_bytes=4 * MIB) as broker:
        await broker.client.put("/v1/topics/t", json={"overflow": overflow})
        answer = await broker.client.post(MESSAGES, content=b"x" * (2 * MIB))
        problem = check_problem(answer, 413, "body-too-large")
        assert problem["limit_bytes"] == MIB


async def test_broken_off_requests_give_their_room_back(stuck: Stuck) -> None:
    await stuck.topic("reject")
    head = f"POST {MESSAGES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MIB}\r\n\r\n".encode()
    for part in (b"", b"x" * 1000):
        _, writer = await asyncio.open_connection("127.0.0.1", stuck.broker.port)
        writer.write(head + part)
        if part:
            await until(lambda: stuck.pending_bytes == 1000)
        writer.close()
        await until(lambda: stuck.pending_bytes == 0)
    assert await stuck.broker.end_offsets("t") == {0: 0}


# -- bodies above the limit ------------------------------------------------------------------------------------


@pytest.fixture
async def small() -> AsyncIterator[HttpBroker]:
    """A broker that takes bodies of up to 64 KiB, with topic `t`; nothing may be stored in it."""
    async with http_broker(MemoryStore(), max_body_bytes=64 * 1024) as broker:
        await broker.client.put("/v1/topics/t", json={"segments": 2})
        yield broker
        assert await broker.end_offsets("t") == {0: 0, 1: 0}
        assert broker.broker.front_store.pending_bytes == 0


def check_too_large(answer: httpx.Response) -> None:
    problem = check_problem(answer, 413, "body-too-large", "65536 bytes", "POST /v1/topics/t/uploads")
    assert problem["limit_bytes"] == 65536
    assert problem["upload"] == "/v1/topics/t/uploads"


KINDS = ["application/json", "application/x-ndjson", ARROW, "application/octet-stream"]


@pytest.mark.parametrize("kind", KINDS)
async def test_body_above_the_limit(small: HttpBroker, kind: str) -> None:
    headers = {"content-type": kind}
    check_too_large(await small.client.post(MESSAGES, content=b"x" * 65_537, headers=headers))
    check_too_large(await small.client.post(MESSAGES, content=chunks(70, 1000), headers=headers))
    bomb = gzip.compress(bytes(10 * MIB))
    assert len(bomb) < 65_536
    headers["content-encoding"] = "gzip"
    check_too_large(await small.client.post(MESSAGES, content=bomb, headers=headers))


async def test_body_announced_above_the_limit_is_not_waited_for(small: HttpBroker) -> None:
    """The refusal comes before a byte of the body is sent."""
    head = f"POST {MESSAGES} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 99999999999\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", small.port)
    with contextlib.closing(writer):
        writer.write(head.encode())
        assert b" 413 " in await asyncio.wait_for(reader.readline(), DEADLINE_SECONDS)


async def test_a_body_that_was_refused_is_read_to_its_end_slowly_and_the_next_request_is_answered() -> None:
    """Who sends on before he reads must still see his answer, and keep nobody from theirs."""
    size_bytes = 24 * MIB
    async with http_broker(MemoryStore(), max_body_bytes=MIB) as broker:
        await broker.client.put("/v1/topics/t")
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        began = asyncio.get_running_loop().time()
        with contextlib.closing(writer):
            head = f"POST {MESSAGES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size_bytes}\r\n\r\n"
            writer.write(head.encode() + bytes(size_bytes) + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(writer.drain(), DEADLINE_SECONDS)
            assert b" 413 " in await asyncio.wait_for(reader.readline(), DEADLINE_SECONDS)
            assert b"HTTP/1.1 200 OK" in await asyncio.wait_for(reader.readuntil(b" OK\r\n"), DEADLINE_SECONDS)
        pieces = (size_bytes - 8 * MIB) / (256 * 1024)
        assert asyncio.get_running_loop().time() - began > pieces * STEP_SECONDS


async def test_the_limit_itself_is_allowed() -> None:
    async with http_broker(MemoryStore(), max_body_bytes=64 * 1024) as broker:
        await broker.client.put("/v1/topics/t")
        for headers, body in [({}, b"x" * 65_536), ({"content-encoding": "gzip"}, gzip.compress(b"x" * 65_536))]:
            (await broker.client.post(MESSAGES, content=body, headers=headers)).raise_for_status()
        assert await broker.end_offsets("t") == {0: 2}


async def test_deep_gzip_bomb_costs_little() -> None:
    """A gigabyte behind a megabyte is refused at the limit, not when it has been inflated."""
    inflated = bytes(16 * MIB)
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(packer.compress(inflated) for _ in range(64)), packer.flush()])
    async with http_broker(MemoryStore(), max_body_bytes=4 * MIB) as broker:
        await broker.client.put("/v1/topics/t")
        peak = await _peak_growth_bytes(_post(broker, bomb, {"content-encoding": "gzip"}))
        assert peak < 64 * MIB


async def _post(broker: HttpBroker, body: bytes, headers: dict[str, str]) -> None:
    check_problem(await broker.client.post(MESSAGES, content=body, headers=headers), 413, "body-too-large")


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
async def test_compressed_arrow_is_refused(small: HttpBroker, compression: str) -> None:
    table = pa.table({"value": [bytes(4 * MIB)]})
    body = stream(table, compression)
    assert len(body) < 65_536
    answer = await small.client.post(MESSAGES, content=body, headers={"content-type": ARROW})
    check_problem(answer, 422, "invalid-request", "without compression")


@pytest.mark.parametrize("of_old", [False, True], ids=["field", "custom metadata"])
async def test_arrow_of_512_mib_in_a_few_kilobytes_costs_nothing(of_old: bool) -> None:
    body = zeros_compressed(512, of_old=of_old)
    assert len(body) < 64 * 1024
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put("/v1/topics/t")

        async def attack() -> None:
            for _ in range(2):
                answer = await broker.client.post(MESSAGES, content=body, headers={"content-type": ARROW})
                check_problem(answer, 422, "invalid-request", "without compression")
            async with socket_client(broker.url, "t") as socket:
                for _ in range(2):
                    await socket.connection.send(b'{"id":1,"publish":"arrow"}\n' + body)
                    await socket.until(lambda: 1 in socket.answers)
                    checked(socket.answers.pop(1)["problem"], "invalid-request", "without compression")

        assert await _peak_growth_bytes(attack()) < 16 * MIB
        assert await broker.end_offsets("t") == {0: 0}


async def test_columns_that_stand_for_more_than_they_take_are_refused(small: HttpBroker) -> None:
    long = pa.array([bytes(40_000)])
    for column in (
        pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), long),
        pa.RunEndEncodedArray.from_arrays([2**30], pa.array([b"x"])),
        pa.array([bytes(1000)] * 3, pa.binary_view()),
        pa.nulls(1000),
    ):
        body = stream(pa.table({"value": column}))
        answer = await small.client.post(MESSAGES, content=body, headers={"content-type": ARROW})
        check_problem(answer, 422, "invalid-request", "must be binary or string")


async def test_many_record_batches_are_refused(small: HttpBroker) -> None:
    schema = pa.schema([("value", pa.binary())])
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for _ in range(10_001):
            writer.write_batch(empty)
    body = gzip.compress(bytes(sink.getvalue()))
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put("/v1/topics/t")
        answer = await broker.client.post(
            MESSAGES, content=body, headers={"content-type": ARROW, "content-encoding": "gzip"}
        )
        check_problem(answer, 422, "invalid-request", "10000 record batches")


# -- requests about many messages -----------------------------------------------------------------------------


async def test_acks_over_sockets_that_are_not_answered_yet_are_bounded() -> None:
    """Each takes 50 KB, and a megabyte and more once it is parsed."""
    document = {"id": 1, "group": "g", "ack": {"messages": [{"claim": "AAAA"}] * 3000}}
    frame = orjson.dumps(document).decode()
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put("/v1/topics/t")
        (await broker.client.put("/v1/topics/t/groups/g", json={"mode": "queue"})).raise_for_status()
        await attack_by_socket(broker, frame, 5)  # what is taken once is no growth
        peak = await _peak_growth_bytes(asyncio.gather(*(attack_by_socket(broker, frame, 40) for _ in range(4))))
        assert peak < 160 * MIB
        assert (broker.broker.asked.pending_bytes, broker.broker.decisions.held_bytes) == (0, 0)


async def attack_by_socket(broker: HttpBroker, frame: str, count: int) -> None:
    async with socket_client(broker.url, "t") as socket:
        answered = 0

        def sort(document: dict[str, Any]) -> None:
            nonlocal answered
            for answer in document["answers"]:
                checked(answer["problem"], "invalid-request", "'AAAA' is not a claim of this group")
                answered += 1

        socket._sort = sort  # type: ignore[method-assign]
        for _ in range(count):
            await socket.connection.send(frame)
        await socket.until(lambda: answered == count)


async def test_long_acks_are_bounded_together() -> None:
    body = b'{"messages":[' + b"{}," * 1_390_000 + b"{}]}"
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put("/v1/topics/t")
        (await broker.client.put("/v1/topics/t/groups/g", json={"mode": "queue"})).raise_for_status()

        async def attack() -> None:
            answer = await broker.client.post("/v1/topics/t/groups/g/acks", content=body)
            check_problem(answer, 422, "invalid-request", "at most 10000 entries")

        peak = await _peak_growth_bytes(asyncio.gather(*(attack() for _ in range(30))))
        assert peak < 160 * MIB
        assert (broker.broker.asked.pending_bytes, broker.broker.asked_arrivals.total_bytes) == (0, 0)


# -- slow readers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
async def test_subscriber_that_does_not_read_costs_no_memory(accept: str) -> None:
    """96 MiB go through while eight subscribers read nothing: what is held for them are socket buffers."""
    async with http_broker(MemoryStore(), front_store_bytes=8 * MIB, file_cache_bytes=8 * MIB) as broker:
        await broker.client.put("/v1/topics/t")
        request = f"GET /v1/topics/t/subscribe?from=earliest HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"
        async with contextlib.AsyncExitStack() as connections:
            for _ in range(8):
                reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1024)
                connections.callback(writer.close)
                writer.write(request.encode())
                await reader.readline()
            await until(lambda: _streams(broker) == 8)
            stored = await _peak_growth_bytes(_publish_much(broker, 96))
        # The store of this test is memory too, 96 MiB, and Arrow keeps what it freed; buffers for eight readers
        # would take eight times as much, as base64.
        assert stored < 4 * 96 * MIB
        assert broker.broker.front_store.recent_bytes <= 8 * MIB
        await until(lambda: _streams(broker) == 0)


def _streams(broker: HttpBroker) -> int:
    found = re.search(rb"^braidmq_streams (\S+)$", b"".join(broker.broker.metrics.pieces()), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


async def _publish_much(broker: HttpBroker, mebibytes: int) -> None:
    for _ in range(mebibytes):
        (await broker.client.post(MESSAGES, content=os.urandom(MIB))).raise_for_status()


async def _peak_growth_bytes(work: Any) -> int:
    """By how much the resident memory of this process grew at most while `work` ran."""
    before = peak = _resident_bytes()
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait([task], timeout=0.01)
        peak = max(peak, _resident_bytes())
    await task
    return peak - before


def _resident_bytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def test_a_json_body_has_a_limit_of_its_own():
    async with http_broker(MemoryStore(), max_json_bytes=64 * 1024) as broker:
        await broker.client.put("/v1/topics/t", json={})
        body = b'{"messages": [{"value": "%b"}]}' % (b"x" * 70_000)
        answer = await broker.client.post(
            "/v1/topics/t/messages", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 413
        assert answer.json()["limit_bytes"] == 64 * 1024
        answer = await broker.client.post("/v1/topics/t/messages", content=body, headers={"content-type": "text/plain"})
        assert answer.status_code == 200


async def test_a_body_that_stalls_gives_its_room_back():
    async with http_broker(MemoryStore(), front_store_bytes=MIB, stall_timeout=0.2) as broker:
        await broker.client.put("/v1/topics/t", json={})
        host, port = broker.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\nhello")
        await writer.drain()
        assert b"408" in await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        answer = await broker.client.post("/v1/topics/t/messages", content=b"x" * 900_000)
        assert answer.status_code == 200
