"""A topic whose topic.json is damaged, gone or older than before: what people see, and that putting it back mends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from filer.clock import SystemClock
from filer.stores.local.local_store import LocalStore
from mq.topic import topic_faults
from tests.support.broker.http_broker import HttpBroker, http_broker

BAD, GOOD = "/v1/topics/bad", "/v1/topics/good"
RECORD = "topics/bad/topic.json"
VALUES = [b"one", b"two"]


def flip_a_bit(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


def cut_off(data: bytes) -> bytes:
    return data[: len(data) // 3]


def delete(data: bytes) -> None:
    return None


Damage = Callable[[bytes], bytes | None]
KINDS = pytest.mark.parametrize(
    ("damage", "problem"), [(flip_a_bit, "data-damaged"), (cut_off, "data-damaged"), (delete, "data-missing")]
)


class Folder:
    """The folder of a broker that has a good topic and one whose record is about to be damaged."""

    def __init__(self, path: Path) -> None:
        self.record = path / "topics" / "bad" / "topic.json"
        self._path, self._whole = path, b""

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[HttpBroker]:
        async with http_broker(LocalStore(self._path, clock=SystemClock()), maintenance_interval=3600) as broker:
            yield broker

    async def fill(self, broker: HttpBroker) -> None:
        for topic in (BAD, GOOD):
            (await broker.client.put(topic)).raise_for_status()
            for value in VALUES:
                (await broker.client.post(f"{topic}/messages?key=k", content=value)).raise_for_status()

    def damage(self, damage: Damage) -> None:
        self._whole = self.record.read_bytes()
        self.record.unlink()
        if (data := damage(self._whole)) is not None:
            self.record.write_bytes(data)

    def put_back(self) -> None:
        self.record.unlink(missing_ok=True)
        self.record.write_bytes(self._whole)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(topic_faults, "RECHECK_SECONDS", 0.02)
    return Folder(tmp_path)


async def problem_of(broker: HttpBroker, method: str, path: str, **request: Any) -> tuple[int, str, str | None]:
    answer = await broker.client.request(method, path, **request)
    told = answer.json()
    return answer.status_code, str(told.get("type")).removeprefix("urn:braidmq:"), told.get("key")


async def values(broker: HttpBroker, topic: str) -> list[bytes]:
    answer = (await broker.client.get(f"{topic}/messages")).raise_for_status().json()
    return [each["value"].encode() for each in answer["messages"]]


async def metric(broker: HttpBroker, name: str) -> float:
    lines = (await broker.client.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def works_again(broker: HttpBroker) -> None:
    """Whatever was refused is taken, without a restart."""
    for _ in range(2000):
        answer = await broker.client.post(f"{BAD}/messages?key=k", content=b"after")
        if answer.is_success and not await metric(broker, "braidmq_unusable_records"):
            break
    else:
        raise AssertionError(answer.text)
    (await broker.client.put(BAD, json={"max_segments": 7})).raise_for_status()
    assert (await values(broker, BAD))[: len(VALUES)] == VALUES


@KINDS
async def test_after_a_restart(folder: Folder, damage: Damage, problem: str) -> None:
    async with folder.broker() as first:
        await folder.fill(first)
    folder.damage(damage)
    async with folder.broker() as broker:
        # Before anybody asks for it.
        async with asyncio.timeout(10):
            while await metric(broker, "braidmq_unusable_records") != 1:
                await asyncio.sleep(0.01)
        told = (503, problem, RECORD)
        assert await problem_of(broker, "GET", BAD) == told
        assert await problem_of(broker, "GET", f"{BAD}/messages") == told
        assert await problem_of(broker, "POST", f"{BAD}/messages", content=b"x") == told
        assert await problem_of(broker, "PUT", BAD) == told
        assert await problem_of(broker, "DELETE", BAD) == told
        listed = (await broker.client.get("/v1/topics")).raise_for_status().json()
        assert listed["unusable"] == [{"topic": "bad", "problem": problem, "key": RECORD}]
        assert [each["topic"] for each in listed["topics"]] == ["good"]
        assert await metric(broker, "braidmq_unusable_records") == 1
        (await broker.client.post(f"{GOOD}/messages?key=k", content=b"three")).raise_for_status()
        assert await values(broker, GOOD) == [*VALUES, b"three"]
        folder.put_back()
        await works_again(broker)


@KINDS
async def test_while_a_broker_runs_the_topic(folder: Folder, damage: Damage, problem: str) -> None:
    """It reads, and stores by the fence of the names; what needs the record is refused."""
    async with folder.broker() as broker:
        await folder.fill(broker)
        folder.damage(damage)
        damaged = folder.record.read_bytes() if folder.record.exists() else None
        assert await values(broker, BAD) == VALUES
        (await broker.client.post(f"{BAD}/messages?key=k", content=b"three")).raise_for_status()
        assert await values(broker, BAD) == [*VALUES, b"three"]
        assert await problem_of(broker, "PUT", BAD, json={"max_segments": 9}) == (503, problem, RECORD)
        assert await problem_of(broker, "DELETE", BAD) == (503, problem, RECORD)
        assert (folder.record.read_bytes() if folder.record.exists() else None) == damaged
        assert await metric(broker, "braidmq_unusable_records") == 1
        folder.put_back()
        await works_again(broker)


async def test_an_older_record_is_refused_by_who_knows_better_and_after_a_restart(folder: Folder) -> None:
    async with folder.broker() as broker:
        (await broker.client.put(BAD)).raise_for_status()
        older = folder.record.read_bytes()
        split = await broker.client.post(f"{BAD}/segments/0/split", json={"parts": 2})
        split.raise_for_status()
        (await broker.client.post(f"{BAD}/messages?key=k", content=b"one")).raise_for_status()
        folder.damage(lambda newest: older)
        answer = await broker.client.put(BAD, json={"max_segments": 9})
        assert answer.status_code == 503 and "was there before" in answer.json()["detail"]
        assert await values(broker, BAD) == [b"one"]
        (await broker.client.post(f"{BAD}/messages?key=k", content=b"two")).raise_for_status()
    async with folder.broker() as again:
        answer = await again.client.get(f"{BAD}/messages")
        assert answer.status_code == 503 and "lies beside it" in answer.json()["detail"]
        assert await problem_of(again, "POST", f"{BAD}/messages", content=b"x") == (503, "data-damaged", RECORD)
        assert await metric(again, 'braidmq_record_faults_total{kind="older"') == 1
        assert folder.record.read_bytes() == older
        folder.put_back()
        await works_again(again)


async def test_a_deleted_topic_can_be_created_again(folder: Folder) -> None:
    async with folder.broker() as broker:
        await folder.fill(broker)
        (await broker.client.delete(BAD)).raise_for_status()
        assert (await broker.client.get(BAD)).status_code == 404
    async with folder.broker() as again:
        assert (await again.client.get(BAD)).status_code == 404
        assert (await again.client.put(BAD)).status_code == 201
        assert await values(again, BAD) == []


async def test_a_damaged_snapshot_is_rebuilt_and_told(folder: Folder, tmp_path: Path) -> None:
    async with folder.broker() as broker:
        await folder.fill(broker)
    snapshots = []
    async with folder.broker() as again:
        await (await again.broker.topics.topic("bad")).take_up([0])
        await again.broker.maintenance.round()
        snapshots = sorted((tmp_path / "topics" / "bad" / "index").glob("*.snapshot"))
    assert snapshots
    for path in snapshots:
        damaged = flip_a_bit(path.read_bytes())
        path.unlink()
        path.write_bytes(damaged)
    async with folder.broker() as last:
        assert await values(last, BAD) == VALUES
        assert await metric(last, "braidmq_snapshots_rebuilt_total") >= 1
