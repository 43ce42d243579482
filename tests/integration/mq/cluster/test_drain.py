"""Having a broker hand over what it owns while its process goes on, where others can take over and where none can."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import http_broker
from tests.support.broker.problems import check_problem
from tests.support.cluster.http_cluster import PATIENCE_SECONDS, HttpCluster, until


@pytest.fixture
async def brokers() -> AsyncIterator[HttpCluster]:
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b")
        yield cluster
    finally:
        await cluster.stop_all()


async def ask_to_drain(brokers: HttpCluster, through: str, name: str) -> httpx.Response:
    return await brokers.up[through].client.post(f"/v1/cluster/brokers/{name}/drain")


async def drain(brokers: HttpCluster, name: str) -> None:
    """Until it owns nothing."""

    async def owns_nothing() -> bool:
        answer = await ask_to_drain(brokers, "a", name)
        return bool(answer.raise_for_status().json()["segments"] == 0)

    await until(owns_nothing)


async def states(brokers: HttpCluster, through: str) -> dict[str, str]:
    listed = (await brokers.get(through, "/v1/cluster"))["brokers"]
    return {each["broker"].partition(".")[0]: each["state"] for each in listed}


async def test_an_embedded_broker_has_nobody_to_hand_over_to() -> None:
    async with http_broker(MemoryStore(), broker="alone") as running:
        (await running.client.put("/v1/topics/t", json={})).raise_for_status()
        problem = check_problem(await running.client.post("/v1/cluster/brokers/alone/drain"), 409, "no-other-broker")
        assert "it runs without ZooKeeper" in problem["detail"] and not problem["retryable"]
        # It goes on as before.
        (await running.client.post("/v1/topics/t/messages", content=b"x")).raise_for_status()
        assert (await running.client.get("/v1/cluster")).json()["brokers"][0]["state"] == "running"


@pytest.mark.parametrize("through", ["a", "b"])
async def test_the_last_that_takes_segments_is_not_drained(brokers: HttpCluster, through: str) -> None:
    """Whether it is asked itself or through another."""
    await brokers.create("a", "t", segments=4)
    await drain(brokers, "b")
    problem = check_problem(await ask_to_drain(brokers, through, "a"), 409, "no-other-broker")
    assert "start another broker" in problem["detail"]
    assert await states(brokers, through) == {"a": "running", "b": "draining"}
    await drain(brokers, "b")  # asking again for the one that has gone through still changes nothing
    assert await brokers.owners("a", "t") == {"a": 4}


@pytest.mark.parametrize("through", ["a", "b"])
async def test_a_drain_is_taken_back(brokers: HttpCluster, through: str) -> None:
    await brokers.create("a", "t", segments=4)
    await drain(brokers, "b")
    path = "/v1/cluster/brokers/b/drain"
    for _ in range(2):  # again it changes nothing
        answer = await brokers.up[through].client.delete(path)
        assert (answer.status_code, answer.json()["broker"]) == (200, brokers.up["b"].broker.id)
    assert await states(brokers, through) == {"a": "running", "b": "running"}

    async def spread() -> bool:
        return await brokers.owners("a", "t") == {"a": 2, "b": 2}

    await until(spread)
    await brokers.publish("a", "t", ("k", "v"))
    assert await brokers.values("b", "t") == ["v"]
    check_problem(await brokers.up["a"].client.delete("/v1/cluster/brokers/x/drain"), 404, "broker-not-found")


@pytest.mark.parametrize("through", ["a", "b"])
async def test_a_broker_that_shuts_down_does_not_take_part_again(brokers: HttpCluster, through: str) -> None:
    await brokers.up["b"].broker.drain()
    answer = await brokers.up[through].client.delete("/v1/cluster/brokers/b/drain")
    check_problem(answer, 503, "draining", "is shutting down")
    assert (await states(brokers, "a"))["b"] == "draining"


async def test_a_broker_left_alone_in_its_cluster_is_not_drained_and_stops_at_once(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=4)
    await brokers.stop("b")
    check_problem(await ask_to_drain(brokers, "a", "a"), 409, "no-other-broker")
    async with asyncio.timeout(PATIENCE_SECONDS / 4):
        await brokers.stop("a")


@pytest.mark.parametrize("comes_back", [True, False])
async def test_who_is_out_of_touch_for_a_moment_hands_over_all_the_same(brokers: HttpCluster, comes_back: bool) -> None:
    """Or all it owns would be failed over, while it stores what its followers hold and they what it does."""
    await brokers.create("b", "t", segments=4)
    leaving = brokers.up["b"].broker
    member = brokers.cut_off("b")
    draining = asyncio.create_task(leaving.drain())
    await asyncio.wait([draining], timeout=0.1)
    assert not draining.done() and not leaving.draining.is_set()
    brokers.membership.session_seconds = PATIENCE_SECONDS if comes_back else 0.0
    if comes_back:
        brokers.join_again(replace(member, draining=True))
    async with asyncio.timeout(PATIENCE_SECONDS / 4):
        await draining
    if comes_back:
        assert await brokers.owners("a", "t") == {"a": 4}


async def test_a_leader_that_shuts_down_lets_another_lead_while_its_requests_wait_for_one(brokers: HttpCluster) -> None:
    """Or they would wait for as long as it does for them."""
    await brokers.start("c")
    await brokers.create("a", "t", segments=6)
    brokers.stores["c"].hold()
    messages = [{"key": f"key-{number}", "value": number} for number in range(50)]
    path = "/v1/topics/t/messages?producer=p&sequence=1"
    publishing = asyncio.create_task(brokers.up["a"].client.post(path, json={"messages": messages}))

    async def waits_for_c() -> bool:
        return any(w.pending_bytes for w in brokers.up["c"].broker.topics["t"].writers.values())

    await until(waits_for_c)
    await brokers.up["a"].broker.drain()
    assert not publishing.done()
    brokers.cut_off("c")
    async with asyncio.timeout(PATIENCE_SECONDS):
        positions = (await publishing).raise_for_status().json()["positions"]
    assert sum(position["count"] for position in positions) == 50
    assert await brokers.owners("b", "t") == {"b": 6}


async def test_a_leader_that_shuts_down_stays_until_successors_of_what_it_had_are_open() -> None:
    """Sealed is not enough: publishers wait for them, and whoever leads next has to read all topics first."""
    brokers = HttpCluster()
    try:
        await brokers.start("a", "b", drain_timeout=4 * PATIENCE_SECONDS)
        await brokers.create("a", "t", segments=4)
        leaving, store = brokers.up["a"].broker, brokers.stores["a"]
        store.hold()
        draining = asyncio.create_task(leaving.drain())

        async def begun() -> bool:
            await brokers.up["b"].broker.topics.refresh("t")
            return brokers.up["b"].broker.topics["t"].state.transition is not None

        async def sealed() -> bool:
            return not leaving.drainer.segments_owned

        await until(begun)
        store.hold("topic.json")
        store.release("/segments/")
        await until(sealed)
        assert not (await asyncio.wait([draining], timeout=0.2))[0] and leaving.coordinator.leads()
        store.release()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await draining
        assert await brokers.owners("b", "t") == {"b": 4}
    finally:
        await brokers.stop_all()
