"""Topic groups of real brokers: owners are killed while consumer groups work on the whole and on its members."""

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.broker.stream_crew import Watch, Worker, any_broker
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.going_on import going_on
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(240)

MEMBERS = ("orders", "payments", "returns")
KEYS = [f"k{n}" for n in range(4)]
SETTLE_SECONDS = 90
LEASE_SECONDS = 2


class Published:
    """What was acknowledged: by member and key how many messages, whose values count from 0."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {member: defaultdict(int) for member in MEMBERS}

    async def go_on(self, client: httpx.AsyncClient, member: str) -> None:
        """One message of each key after the other, for ever: each request to any broker, be it the owner or not."""
        sequence, counts = 0, self.counts[member]
        while True:
            body = {"messages": [{"key": key, "value": {"of": member, "n": counts[key]}} for key in KEYS]}
            params: dict[str, str | int] = {"producer": "p", "sequence": sequence}
            answer = await client.post(f"/v1/topics/{member}/messages", params=params, json=body)
            answer.raise_for_status()
            sequence += 1
            for key in KEYS:
                counts[key] += 1
            await asyncio.sleep(0.02)

    def of(self, member: str) -> list[tuple[str, str, int]]:
        """The messages of a member that must be there."""
        return [(member, key, n) for key, count in self.counts[member].items() for n in range(count)]


class QueueWorker:
    """Claims and acks for ever. `acked` counts how often an ack of a message was accepted."""

    def __init__(self, client: httpx.AsyncClient, topic: str) -> None:
        self._client, self._path = client, f"/v1/topics/{topic}/groups/g"
        self.acked: Counter[tuple[str, str, int]] = Counter()

    async def go_on(self) -> None:
        while True:
            answer = await self._client.post(f"{self._path}/claims", json={"max": 50, "wait": 0.5})
            claimed = answer.raise_for_status().json()["messages"]
            if not claimed:
                continue
            parts = [{"claim": message["claim"], "id": message["id"]} for message in claimed]
            answer = await self._client.post(f"{self._path}/acks", json={"messages": parts})
            if answer.status_code == 409:
                continue  # its leases have run out: they are with somebody else
            held = answer.raise_for_status().json()["results"]
            for message, result in zip(claimed, held, strict=True):
                if result["accepted"]:
                    self.acked[message["value"]["of"], message["key"], message["value"]["n"]] += 1


async def until_done(client: httpx.AsyncClient, *groups: str) -> None:
    """Until these groups have nothing left to do."""
    async with asyncio.timeout(SETTLE_SECONDS):
        for group in groups:
            while (await client.get(f"/v1/topics/{group}")).raise_for_status().json()["lag"]["messages"]:
                await asyncio.sleep(0.1)


async def until_published(published: Published, more: int) -> None:
    """Until each member has so many more messages than now."""
    wanted = {member: sum(counts.values()) + more for member, counts in published.counts.items()}
    async with asyncio.timeout(SETTLE_SECONDS):
        while any(sum(published.counts[member].values()) < count for member, count in wanted.items()):
            await asyncio.sleep(0.05)


async def read_all(client: httpx.AsyncClient, topic: str) -> list[dict[str, Any]]:
    found, marker = list[dict[str, Any]](), None
    while True:
        params: dict[str, str | int] = {"limit": 1000, **({} if marker is None else {"marker": marker})}
        page = (await client.get(f"/v1/topics/{topic}/messages", params=params)).raise_for_status().json()
        if page["marker"] == marker:
            return found
        found += page["messages"]
        marker = page["marker"]


def check_in_order(found: list[dict[str, Any]], wanted: list[tuple[str, str, int]]) -> None:
    """Nothing is lost, twice, or out of order; the last of each key may be stored without an answer."""
    by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
    for message in found:
        by_key[message["value"]["of"], message["key"]].append(message["value"]["n"])
    for values in by_key.values():
        assert values == list(range(len(values)))
    assert set(wanted) <= {(*key, n) for key, values in by_key.items() for n in values}
    for key, values in by_key.items():
        assert len(values) <= sum(each[:2] == key for each in wanted) + 1


async def create_side_by_side(cluster: Cluster) -> None:
    """Each broker is asked for the same group; and for a topic, and two groups, that want one name."""
    settings = {"key_type": "string", "value_type": "json", "acks": "replicated", "replicas": 2}
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=20)) for url in cluster.urls]
        body = {"topics": list(MEMBERS), **settings}
        answers = await asyncio.gather(*(each.put("/v1/topic-groups/shop", json=body) for each in clients))
        assert {answer.status_code for answer in answers} <= {200, 201}, [answer.text for answer in answers]
        described = [(await each.get("/v1/topic-groups/shop")).json() for each in clients]
        assert [(each["topics"], each["pending"]) for each in described] == [(list(MEMBERS), [])] * 3
        wanting: list[Callable[[], Any]] = [
            lambda: clients[0].put("/v1/topics/stall"),
            lambda: clients[1].put("/v1/topic-groups/mall", json={"topics": ["stall", "kiosk"]}),
            lambda: clients[2].put("/v1/topic-groups/fair", json={"topics": ["stall", "tent"]}),
        ]
        outcomes = [answer.status_code for answer in await asyncio.gather(*(each() for each in wanting))]
        assert outcomes.count(201) >= 1 and set(outcomes) <= {200, 201, 409}, outcomes
        # Whoever asks, and whomever: the name has one owner.
        owners = {(await each.get("/v1/topics/stall")).json().get("group") for each in clients}
        assert len(owners) == 1
        told = {None: outcomes[0], "mall": outcomes[1], "fair": outcomes[2]}
        assert told[owners.pop()] in (200, 201)
        assert sum(code in (200, 201) for code in outcomes) == 1


async def test_promises_are_kept_while_owners_are_killed(tmp_path: Path) -> None:
    published, watch, chance = Published(), Watch(), random.Random(5)
    with Cluster(tmp_path, SharedDirectory(tmp_path / "store"), session_timeout_seconds=2.0) as cluster:
        await create_side_by_side(cluster)
        async with any_broker(cluster.urls) as client:
            for topic in ("shop", "orders"):
                settings = {"lease_seconds": LEASE_SECONDS, "backoff_seconds": [0], "max_deliveries": 1000}
                (await client.put(f"/v1/topics/{topic}/groups/g", json=settings)).raise_for_status()
            stream = "/v1/topics/payments/groups/s"
            (await client.put(stream, json={"mode": "stream", "session_seconds": 2})).raise_for_status()
            whole, member = QueueWorker(client, "shop"), QueueWorker(client, "orders")
            reader = Worker(client, "a", watch, stream, chance)
            async with going_on(whole.go_on(), whole.go_on(), member.go_on(), member.go_on()):
                async with going_on(*(published.go_on(client, each) for each in MEMBERS)):
                    await until_published(published, 40)
                    for kind in ("owner", "coordinator"):
                        victim = await coordinator(client, "orders/groups/g")
                        if kind == "owner":
                            (segment,) = await cluster.segments("shop")
                            victim = await cluster.owner_of("shop", segment)
                        await cluster.kill(victim)
                        await until_published(published, 40)
                        await cluster.start(victim)
                await until_done(client, "shop/groups/g", "orders/groups/g", "payments/groups/s")
            await reader.end()
            for topic in MEMBERS:
                check_in_order(await read_all(client, topic), published.of(topic))
            together = [each for topic in MEMBERS for each in published.of(topic)]
            found = await read_all(client, "shop")
            check_in_order(found, together)
            assert all(message["topic"] == message["value"]["of"] for message in found)
            # Each message was acked once, by whoever had it, and by nobody who works on another topic.
            assert set(whole.acked.values()) == set(member.acked.values()) == {1}
            assert set(together) <= set(whole.acked) and set(published.of("orders")) <= set(member.acked)
            assert {of for of, _, _ in member.acked} == {"orders"}
            assert {key: len(set(map(str, values))) for key, values in watch.delivered.items()}.keys() == set(KEYS)
            for key, values in watch.delivered.items():
                firsts = [value["n"] for value in {str(value): value for value in values}.values()]
                assert firsts[: published.counts["payments"][key]] == list(range(published.counts["payments"][key]))
                assert {value["of"] for value in values} == {"payments"}
    assert not cluster.topic_complaints()


async def coordinator(client: httpx.AsyncClient, group: str) -> str:
    told: str = (await client.get(f"/v1/topics/{group}")).raise_for_status().json()["coordinator"]
    return told.partition(".")[0]
