"""The broker that answers a read counts it, and a topic shows it in the traffic of the segment."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from filer.stores.memory_store import MemoryStore
from mq.forms.formats import ARROW
from tests.support.broker.http_broker import HttpBroker, http_broker

T = "/v1/topics/t"


@pytest.fixture
async def broker() -> AsyncIterator[HttpBroker]:
    """A broker with a topic of two segments of 10 messages each. It reports only when the test says so."""
    async with http_broker(MemoryStore(), report_interval=3600) as running:
        await running.client.put(T, json={"segments": 2})
        body = {"messages": [{"key": key, "value": "x" * 50} for key in ("ann", "bob") * 10]}
        answer = await running.client.post(f"{T}/messages", json=body)
        assert sorted(p["count"] for p in answer.raise_for_status().json()["positions"]) == [10, 10]
        yield running


async def traffic(broker: HttpBroker) -> list[dict[str, Any]]:
    """The traffic of both segments, as of now."""
    await broker.broker.traffic_reporter.report()
    return [segment["traffic"] for segment in (await broker.client.get(T)).json()["segments"]]


async def counted(broker: HttpBroker) -> tuple[float, float]:
    """Messages and bytes read, by the metrics."""
    lines = (await broker.client.get("/metrics")).text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    names = ("braidmq_messages_read_total", "braidmq_bytes_read_total")
    messages, size_bytes = (float(values[f'{name}{{topic="t"}}']) for name in names)
    return messages, size_bytes


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", ARROW])
async def test_a_page_of_the_topic_counts_for_all_its_segments(broker: HttpBroker, accept: str) -> None:
    page = await broker.client.get(f"{T}/messages", headers={"accept": accept})
    assert await counted(broker) == (20, pytest.approx(len(page.content), abs=1))
    left, right = await traffic(broker)
    for name in ("read_messages_per_second", "read_bytes_per_second"):
        assert left[name] == pytest.approx(right[name], rel=0.5) and left[name] > 0
    assert left["read_bytes_per_second"] > 50 * left["read_messages_per_second"]
    assert left["pending_bytes"] == 0 and left["times_target"] > 0


async def test_a_page_of_one_segment_counts_for_that_one(broker: HttpBroker) -> None:
    await broker.client.get(f"{T}/segments/1/messages", params={"limit": 4})
    await broker.client.get(f"{T}/messages/1-0")
    payload = await broker.client.get(f"{T}/messages/1-1/payload")
    assert payload.content == b"x" * 50
    assert (await counted(broker))[0] == 6
    left, right = await traffic(broker)
    assert left["read_messages_per_second"] == left["read_bytes_per_second"] == 0
    assert right["read_bytes_per_second"] > right["read_messages_per_second"] > 0


async def test_a_page_without_messages_counts_for_nothing(broker: HttpBroker) -> None:
    await broker.client.get(f"{T}/messages", params={"from": "latest"})
    await broker.client.get(f"{T}/segments/0/messages", params={"offset": 10})
    assert await counted(broker) == (0, 0)


async def test_a_stream_counts_what_it_sends(broker: HttpBroker) -> None:
    lines: list[str] = []
    async with broker.client.stream(
        "GET", f"{T}/subscribe", params={"from": "earliest"}, headers={"accept": "application/x-ndjson"}
    ) as stream:
        async for line in stream.aiter_lines():
            lines.append(line)
            if sum('"message"' in each for each in lines) == 20:
                break
    messages, size_bytes = await counted(broker)
    sent_bytes = sum(len(line) + 1 for line in lines if '"message"' in line)
    assert (messages, size_bytes) == (20, sent_bytes)
    assert all(each["read_messages_per_second"] > 0 for each in await traffic(broker))
