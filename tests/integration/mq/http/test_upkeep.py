"""Telling a broker that other programs have written roll-ups."""

from filer.memory_store import MemoryStore
from tests.support.http_broker import http_broker
from tests.support.problems import check_problem


async def test_it_says_how_many_segments_it_will_look_at() -> None:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as broker:
        await broker.client.put("/v1/topics/t", json={"segments": 3})
        await broker.broker.maintenance.round()
        answer = await broker.client.post("/v1/topics/t/upkeep")
        assert (answer.status_code, answer.json()) == (202, {"topic": "t", "segments": 3})


async def test_a_topic_that_is_not_there_is_not_found() -> None:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as broker:
        check_problem(await broker.client.post("/v1/topics/none/upkeep"), 404, "topic-not-found")
