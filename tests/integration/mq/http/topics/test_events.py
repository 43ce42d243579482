"""What a broker logs about the lives of its topics: in order, and each once."""

import logging
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.broker.http_broker import HttpBroker
from tests.support.topic.bulk_loads import commit, numbered, put_files, reserve

TOPIC = "/v1/topics/t"


@pytest.fixture
async def client(memory_broker: HttpBroker, caplog: pytest.LogCaptureFixture) -> AsyncIterator[httpx.AsyncClient]:
    caplog.set_level(logging.INFO)
    return memory_broker.client


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message.partition(" duration_seconds=")[0] for message in caplog.messages if " topic=t" in message]


async def test_creating_configuring_and_deleting(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    for body in ({"segments": 2}, {"segments": 2}, {"retention": {"seconds": 3600}, "max_segments": 9}):
        (await client.put(TOPIC, json=body)).raise_for_status()
    (await client.post(f"{TOPIC}/messages", content=b"x")).raise_for_status()
    (await client.delete(TOPIC)).raise_for_status()
    assert (await client.delete(TOPIC)).status_code == 404
    assert [line.partition(" from=")[0] for line in told(caplog)] == [
        "topic_created topic=t segments=2",
        "topic_configured topic=t settings=max_segments,retention",
        "transition_begun topic=t reason=delete segments=0,1",
        "segments_sealed topic=t reason=delete segments=0,1",
        "transition_finished topic=t reason=delete segments=0,1",
        "topic_deleted topic=t",
    ]


async def test_a_bulk_load(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    (await client.put(TOPIC, json={"segments": 2})).raise_for_status()
    caplog.clear()
    for _ in range(2):
        load = await reserve(client, "t", 1, "history")
    files = load.files(numbered(0, 100))
    assert (await commit(client, load, files)).status_code == 422
    assert 'braidmq_load_commits_failed_total{reason="refused"} 1.0' in (await client.get("/metrics")).text
    await put_files(client, load, files)
    for _ in range(2):
        (await commit(client, load, files)).raise_for_status()
    given_up = await reserve(client, "t", 1, "other")
    (await client.delete(given_up.path)).raise_for_status()
    refused = next(line for line in told(caplog) if line.startswith("load_refused"))
    assert refused.startswith('load_refused topic=t load=history error="LoadRefused: ')
    assert [line for line in told(caplog) if line.startswith("load")] == [
        "load_reserved topic=t load=history segments=1",
        "load_commit_began topic=t load=history files=1",
        refused,
        "load_commit_began topic=t load=history files=1",
        "load_committed topic=t load=history files=1 messages=100",
        "load_reserved topic=t load=other segments=1",
        "load_abandoned topic=t load=other",
    ]
