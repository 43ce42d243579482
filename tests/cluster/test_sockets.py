"""Sockets of a broker that owns nothing: owners and coordinators are killed, and brokers drain, below them."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.broker.socket_client import SocketClient, socket_client
from tests.support.cluster.cluster import Cluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(240)

T = "/v1/topics/t"
QUEUE = {"group": "g", "mode": "queue"}


async def publish_on(socket: SocketClient, producer: str, done: list[int]) -> None:
    """Publish one number after the other, some under way at a time; what may be sent again is sent again."""
    sequence = 0
    while True:
        asked = [
            (number, await socket.send(publish={"key": "k", "value": f"{number}"}, producer=producer, sequence=number))
            for number in range(sequence, sequence + 5)
        ]
        for number, id_ in asked:
            await socket.until(lambda id_=id_: id_ in socket.answers)
            answer = socket.answers[id_]
            while "problem" in answer:
                assert answer["problem"]["retryable"], answer
                await asyncio.sleep(0.1)
                answer = await socket.ask(
                    publish={"key": "k", "value": f"{number}"}, producer=producer, sequence=number
                )
            done.append(number)
        sequence += len(asked)


async def work_on(socket: SocketClient, acked: set[str]) -> None:
    """Ack all that is delivered."""
    await socket.ok(subscribe={**QUEUE, "credit": 50})
    while True:
        got = await socket.delivery()
        messages = got["messages"]
        part = {"messages": [{"claim": each["claim"], "id": each["id"]} for each in messages]}
        answer = await socket.ask(ack=part, group="g")
        if "ok" in answer:
            lost = {offset for each in answer["ok"]["results"] for span in each["lost"] for offset in range(*span)}
            acked |= {each["value"] for each in messages if each["offset"] not in lost}
        await socket.send(credit=len(messages))


async def read_on(socket: SocketClient, seen: list[int], **begin: Any) -> str:
    """Note all that comes until the subscription ends; returns where to go on."""
    await socket.ok(id="read", subscribe={"credit": 100_000, **begin})
    while True:
        await socket.until(lambda: bool(socket.delivered))
        got = socket.delivered.pop(0)
        seen += [int(each["value"]) for each in got.get("messages", ())]
        if "end" in got:
            assert got["end"] == "draining", got
            marker: str = got["marker"]
            return marker


async def until_more(done: list[int], count: int) -> None:
    target = len(done) + count
    async with asyncio.timeout(90):
        while len(done) < target:
            await asyncio.sleep(0.05)


async def test_a_socket_goes_on_while_owners_are_killed_and_ends_with_where_to_go_on(tmp_path: Path) -> None:
    done: list[int] = []
    seen: list[int] = []
    acked: set[str] = set()
    with Cluster(tmp_path, SharedDirectory(tmp_path / "store"), session_timeout_seconds=2.0) as cluster:
        async with httpx.AsyncClient(base_url=cluster.urls[0]) as client:
            (await client.put(T, json={"value_type": "string", "key_type": "string"})).raise_for_status()
            (await client.put(f"{T}/groups/g", json={"lease_seconds": 3})).raise_for_status()
            coordinator = (await client.get(f"{T}/groups/g")).json()["coordinator"].partition(".")[0]
        owner = await cluster.owner_of("t", 0)
        mine = next(name for name in cluster.brokers if name not in (owner, coordinator))
        url = cluster.brokers[mine].process.url
        async with (
            socket_client(url, "t") as publishing,
            socket_client(url, "t") as working,
            socket_client(url, "t") as reading,
        ):
            tasks = [
                asyncio.create_task(publish_on(publishing, "p", done)),
                asyncio.create_task(work_on(working, acked)),
            ]
            read = asyncio.create_task(read_on(reading, seen, **{"from": "earliest"}))
            await until_more(done, 50)
            await cluster.kill(owner)
            await until_more(done, 50)
            if coordinator != owner:
                await cluster.start(owner)
                await cluster.wait_until_settled("t", "__groups")
                await cluster.kill(coordinator)
                await until_more(done, 50)
            await cluster.start(coordinator if coordinator != owner else owner)
            await cluster.wait_until_settled("t", "__groups")
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
            async with asyncio.timeout(60):
                while not {f"{number}" for number in done} <= acked:
                    assert not tasks[1].done(), tasks[1].result()
                    await asyncio.sleep(0.1)
            tasks[1].cancel()
            await asyncio.gather(tasks[1], return_exceptions=True)
            # The broker of the socket goes: what it says is enough to go on at another one.
            assert await cluster.drain(mine) == 0
            marker = await asyncio.wait_for(read, 30)
            assert await reading.end() == (1001, "draining")
        other = next(each.process.url for name, each in cluster.brokers.items() if name != mine)
        async with socket_client(other, "t") as socket:
            last = await socket.ok(publish={"key": "k", "value": "1000000"})
            assert last["positions"]
            following = asyncio.create_task(read_on(socket, seen, marker=marker))
            async with asyncio.timeout(30):
                while not seen or seen[-1] != 1_000_000:
                    await asyncio.sleep(0.05)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    # Each number once: sent again with their producer and sequence they are stored once, perhaps behind others.
    assert sorted(seen) == [*range(len(seen) - 1), 1_000_000]
    assert len(seen) - 1 > max(done)
