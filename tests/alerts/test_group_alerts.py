"""Groups without consumers, messages that nobody can work on, and retention that overtakes a group."""

import asyncio
from pathlib import Path

import pytest

from tests.alerts.conftest import OpenDesk
from tests.alerts.desk import Desk
from tests.alerts.load import messages, repeated
from tests.alerts.one_broker import TOKEN, OneBroker, one_broker

pytestmark = pytest.mark.timeout(600)
GROUP = "/v1/topics/orders/groups/billing"
# Lags are measured every ten seconds.
WINDOW_SECONDS = 40
FIRST = 3
OF_LAG = ("BraidMQGroupIsLate", "BraidMQGroupFallsBehind", "BraidMQGroupHasNobody")


async def work(broker: OneBroker) -> None:
    """Claim what there is, and ack it."""
    claimed = (await broker.client.post(f"{GROUP}/claims", json={"max": 1000})).raise_for_status().json()["messages"]
    if claimed:
        acks = {"messages": [{"claim": each["claim"], "id": each["id"]} for each in claimed]}
        (await broker.client.post(f"{GROUP}/acks", json=acks)).raise_for_status()


@pytest.mark.alerts(*OF_LAG)
async def test_nobody_consumes(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with one_broker(tmp_path, data=tmp_path / "data") as broker:
        desk = open_desk(
            broker.environment,
            {"BraidMQGroupIsLate": 5, "BraidMQGroupFallsBehind": 20},
            token=TOKEN,
            window_seconds=WINDOW_SECONDS,
        )
        desk.prometheus.watch([broker.process.url])
        (await broker.client.put(GROUP)).raise_for_status()
        async with repeated(lambda: broker.client.post("/v1/topics/orders/messages", json=messages(5))):
            for name in OF_LAG:
                await desk.fires(name, topic="orders", group="billing")
        async with repeated(lambda: work(broker), pause_seconds=0.05):
            await desk.end(*OF_LAG, timeout_seconds=150)


@pytest.mark.alerts("BraidMQDeadLetters", "BraidMQDeadLettersOpen")
async def test_a_consumer_gives_messages_up(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with one_broker(tmp_path, data=tmp_path / "data") as broker:
        desk = open_desk(broker.environment, token=TOKEN, window_seconds=WINDOW_SECONDS)
        desk.prometheus.watch([broker.process.url])
        (await broker.client.put(GROUP)).raise_for_status()
        (await broker.client.post("/v1/topics/orders/messages", json=messages(FIRST))).raise_for_status()
        await until_measured(desk)
        claimed = (
            (await broker.client.post(f"{GROUP}/claims", json={"max": FIRST})).raise_for_status().json()["messages"]
        )
        dead = {"messages": [{"claim": each["claim"], "id": each["id"]} for each in claimed], "dead": True}
        (await broker.client.post(f"{GROUP}/releases", json=dead)).raise_for_status()
        for name in ("BraidMQDeadLetters", "BraidMQDeadLettersOpen"):
            await desk.fires(name, topic="orders", group="billing")
        (await broker.client.post(f"{GROUP}/redrive", json={"discard": True})).raise_for_status()
        await desk.end("BraidMQDeadLetters", "BraidMQDeadLettersOpen", timeout_seconds=150)


@pytest.mark.alerts("BraidMQGroupHasLostMessages")
async def test_retention_overtakes_a_group(tmp_path: Path, open_desk: OpenDesk) -> None:
    arguments = ("--maintenance-interval", "1")
    async with one_broker(tmp_path, data=tmp_path / "data", arguments=arguments) as broker:
        desk = open_desk(broker.environment, token=TOKEN, window_seconds=WINDOW_SECONDS)
        desk.prometheus.watch([broker.process.url])
        (await broker.client.put(GROUP)).raise_for_status()
        (await broker.client.post("/v1/topics/orders/messages", json=messages(FIRST))).raise_for_status()
        await until_measured(desk)
        (await broker.client.put("/v1/topics/orders", json={"retention": {"seconds": 1}})).raise_for_status()
        # The newest file of an open segment stays.
        async with repeated(lambda: broker.client.post("/v1/topics/orders/messages", json=messages(1))):
            async with asyncio.timeout(90):
                while (await broker.client.get("/v1/topics/orders")).json()["segments"][0]["start_offset"] < FIRST:
                    await asyncio.sleep(0.3)
            await work(broker)
            await desk.fires("BraidMQGroupHasLostMessages", topic="orders", group="billing")
        await desk.end("BraidMQGroupHasLostMessages", timeout_seconds=150)


async def until_measured(desk: Desk) -> None:
    """Wait until the group has series: what they begin with is no increase."""
    async with asyncio.timeout(90):
        while not await desk.prometheus.query('braidmq_group_lag_messages{group="billing"}'):
            await asyncio.sleep(0.3)
