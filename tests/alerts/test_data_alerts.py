"""Objects are damaged or gone, upkeep does not keep up, loads are refused, and storage is short."""

import asyncio
import os
from pathlib import Path

import httpx
import pytest

from tests.alerts.conftest import OpenDesk
from tests.alerts.load import messages, repeated
from tests.alerts.one_broker import TOKEN, OneBroker, one_broker
from tests.support.topic.bulk_loads import commit, numbered, reserve

pytestmark = pytest.mark.timeout(600)
UPKEEP = ("--maintenance-interval", "1")
# Everything within some nine seconds.
SCRUB = ("--scrub-days", "0.0001")


def files_of(data: Path) -> list[Path]:
    """The segment files of `orders`, the oldest first."""
    return sorted((data / "topics" / "orders" / "segments").rglob("*.parquet"))


async def publish(broker: OneBroker, files: int, size_bytes: int = 100) -> None:
    """So many publishes of one message that cannot be compressed, a file each."""
    for _ in range(files):
        body = messages(1, os.urandom(size_bytes // 2).hex())
        (await broker.client.post("/v1/topics/orders/messages", json=body)).raise_for_status()


async def restart(broker: OneBroker, *, kill: bool = False) -> None:
    """End it, cleanly or not, and start it again at the same port."""
    process = broker.process
    await asyncio.to_thread(process.kill if kill else process.terminate)
    await asyncio.to_thread(process.start)


def flip(file: Path) -> bytes:
    """Change a bit in the middle of a file. Returns what it was."""
    before = file.read_bytes()
    middle = len(before) // 2
    file.write_bytes(before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :])
    return before


@pytest.mark.alerts("BraidMQDataMissing", "BraidMQDamageFound", "BraidMQRecordsUnusable")
async def test_objects_are_gone_and_damaged(tmp_path: Path, open_desk: OpenDesk, free_port: int) -> None:
    data = tmp_path / "data"
    arguments = (*UPKEEP, *SCRUB, "--port", str(free_port))
    async with one_broker(tmp_path, data=data, arguments=arguments) as broker:
        desk = open_desk({**broker.environment, "BRAIDMQ_STORE": str(data)}, token=TOKEN)
        await publish(broker, 4)
        # What is in its memory needs no file.
        await restart(broker)
        desk.prometheus.watch([broker.process.url])
        await desk.prometheus.until_scraped(1)
        gone = files_of(data)[1]
        kept = gone.rename(tmp_path / "kept")
        async with repeated(lambda: broker.client.get("/v1/topics/orders/messages", params={"from": "earliest"})):
            await desk.fires("BraidMQDataMissing", topic="orders", kind="missing")
            kept.rename(gone)
            await desk.end("BraidMQDataMissing")
        damaged = files_of(data)[0]
        before = flip(damaged)
        await desk.fires("BraidMQDamageFound", topic="orders", kind="damaged")
        damaged.write_bytes(before)
        record = data / "topics" / "orders" / "topic.json"
        good = record.read_bytes()
        record.write_bytes(b"{")
        await desk.fires("BraidMQRecordsUnusable")
        record.write_bytes(good)
        await desk.end("BraidMQDataMissing", "BraidMQDamageFound", "BraidMQRecordsUnusable")


@pytest.mark.alerts("BraidMQTopicRepairFails")
async def test_a_topic_of_a_broker_that_was_killed_cannot_be_taken_over(
    tmp_path: Path, open_desk: OpenDesk, free_port: int
) -> None:
    data = tmp_path / "data"
    async with one_broker(tmp_path, data=data, arguments=(*UPKEEP, "--port", str(free_port))) as broker:
        desk = open_desk(
            {**broker.environment, "BRAIDMQ_STORE": str(data)},
            {"BraidMQTopicRepairFails": 0.5},
            token=TOKEN,
            window_seconds=30,
        )
        desk.prometheus.watch([broker.process.url])
        await publish(broker, 2)
        await asyncio.to_thread(broker.process.kill)
        last = files_of(data)[-1]
        before = flip(last)
        await asyncio.to_thread(broker.process.start)
        async with repeated(lambda: broker.client.post("/v1/topics/orders/messages", json=messages(1))):
            await desk.fires("BraidMQTopicRepairFails", topic="orders")
            last.write_bytes(before)
            await desk.end("BraidMQTopicRepairFails")


@pytest.mark.alerts("BraidMQScrubOverdue")
async def test_the_scrub_is_too_slow(tmp_path: Path, open_desk: OpenDesk, free_port: int) -> None:
    data = tmp_path / "data"
    arguments = (*UPKEEP, *SCRUB, "--port", str(free_port), "--scrub-bytes-per-second", "65536")
    async with one_broker(tmp_path, data=data, arguments=arguments) as broker:
        desk = open_desk(broker.environment, token=TOKEN)
        desk.prometheus.watch([broker.process.url])
        await publish(broker, 3, 2_000_000)
        await desk.fires("BraidMQScrubOverdue")
        given = broker.process.arguments
        given[given.index("--scrub-bytes-per-second") + 1] = "1GiB"
        await restart(broker)
        await desk.end("BraidMQScrubOverdue")


@pytest.mark.alerts("BraidMQLoadsFail")
async def test_a_load_is_refused(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with one_broker(tmp_path, data=tmp_path / "data") as broker:
        desk = open_desk(broker.environment, token=TOKEN)
        desk.prometheus.watch([broker.process.url])
        await desk.prometheus.until_scraped(1)
        load = await reserve(broker.client, "orders", 1)
        # Its files are not there.
        assert (
            await commit(broker.client, load, load.files(numbered(0, 100)))
        ).status_code == httpx.codes.UNPROCESSABLE_ENTITY
        await desk.fires("BraidMQLoadsFail", reason="refused")
        await desk.end("BraidMQLoadsFail")


@pytest.mark.alerts("BraidMQStorageQuotaFills")
async def test_the_storage_of_a_quota_fills(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with one_broker(tmp_path, data=tmp_path / "data", arguments=UPKEEP) as broker:
        desk = open_desk(broker.environment, token=TOKEN)
        desk.prometheus.watch([broker.process.url])
        await broker.set_policy(
            {"quotas": [{"principal": "shop", "storage_bytes": 1_000_000, "storage_topics": "orders*"}]}
        )
        await publish(broker, 1, 1_900_000)
        await desk.fires("BraidMQStorageQuotaFills", topics="orders*")
        (await broker.client.delete("/v1/topics/orders")).raise_for_status()
        await desk.end("BraidMQStorageQuotaFills")
