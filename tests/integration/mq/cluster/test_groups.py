"""Consumer groups in a cluster: any broker serves any group, and the coordinator goes with its segment."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import httpx

from tests.support.broker.problems import check_problem
from tests.support.cluster.http_cluster import SEGMENT_FILES, HttpCluster, until

G = "/v1/topics/t/groups/g"


async def ask(brokers: HttpCluster, through: str, verb: str, **body: Any) -> httpx.Response:
    return await brokers.up[through].client.post(f"{G}/{verb}", json=body)


async def claim(brokers: HttpCluster, through: str, **body: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await ask(brokers, through, "claims", **body)).raise_for_status().json()["messages"]
    return found


async def ack(brokers: HttpCluster, through: str, *messages: dict[str, Any]) -> int:
    parts = [{"claim": message["claim"], "id": message["id"]} for message in messages]
    accepted: int = (await ask(brokers, through, "acks", messages=parts)).raise_for_status().json()["accepted"]
    return accepted


async def coordinator(brokers: HttpCluster, through: str) -> str:
    told: str = (await brokers.get(through, G))["coordinator"]
    return told.partition(".")[0]


async def test_any_broker_serves_any_group(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=3)
    await brokers.publish("a", "t", *((f"k{n}", f"v{n}") for n in range(60)))
    seen: list[str] = []
    for through in "abcabc":
        messages = await claim(brokers, through, max=10, wait=5)
        assert await ack(brokers, "abc"["abc".index(through) - 1], *messages) == len(messages)
        seen += [message["value"] for message in messages]
    assert sorted(seen) == sorted(f"v{n}" for n in range(60))
    assert {await coordinator(brokers, through) for through in "abc"} == {await coordinator(brokers, "a")}
    listed = {"groups": [{"group": "g", "mode": "queue"}], "next": None}
    assert [await brokers.get(through, "/v1/topics/t/groups") for through in "abc"] == [listed] * 3
    problem = check_problem(await ask(brokers, "c", "acks", messages=[{"claim": "x"}]), 422, "invalid-request")
    assert "not a claim of this group" in problem["detail"]
    # A message that comes while they wait.
    waiting = {through: asyncio.create_task(claim(brokers, through, wait=20)) for through in "abc"}
    while (await brokers.get("a", G))["waiting_consumers"] < 3:
        await asyncio.sleep(0.01)
    await brokers.publish("b", "t", *[("k", "late")] * 9)  # all in one segment: one look finds all of them
    assert [m["value"] for share in await asyncio.gather(*waiting.values()) for m in share] == ["late"] * 9


async def test_a_drained_coordinator_hands_its_leases_over(brokers: HttpCluster) -> None:
    await brokers.create("a", "t")
    await brokers.publish("a", "t", *((f"k{n}", f"v{n}") for n in range(10)))
    first, acked = await claim(brokers, "a", max=4), await claim(brokers, "b", max=2)
    assert await ack(brokers, "b", *acked) == 2
    before = await coordinator(brokers, "a")
    other = next(name for name in "abc" if name != before)

    async def is_drained() -> bool:
        answer = await brokers.up[other].client.post(f"/v1/cluster/brokers/{before}/drain")
        return bool(answer.raise_for_status().json()["segments"] == 0)

    await until(is_drained)
    # What is claimed is not delivered again for it, and may be acked.
    rest = await claim(brokers, other, max=100, wait=5)
    assert [m["value"] for m in rest] == ["v6", "v7", "v8", "v9"] and {m["deliveries"] for m in rest} == {1}
    assert await ack(brokers, other, *first) == 4 and await ack(brokers, before, *acked) == 2
    assert await coordinator(brokers, before) != before


async def test_a_coordinator_that_is_gone_is_followed_by_another(brokers: HttpCluster) -> None:
    """What it had claimed may be acked at the next one, and comes again once a lease may have run."""
    await brokers.create("a", "t")
    settings = {"lease_seconds": 1, "backoff_seconds": [0]}
    await brokers.up["a"].client.put(G, json=settings)
    await brokers.publish("a", "t", *((f"k{n}", f"v{n}") for n in range(5)))
    held, acked = await claim(brokers, "a", max=2), await claim(brokers, "a", max=1)
    assert await ack(brokers, "a", *acked) == 1
    before = await coordinator(brokers, "a")
    other = next(name for name in "abc" if name != before)
    brokers.cut_off(before)
    assert await ack(brokers, other, held[0], *acked) == 2
    seen: dict[str, int] = {}
    while len(seen) < 3:
        for message in await claim(brokers, other, wait=10):
            seen[message["value"]] = message["deliveries"]
            await ack(brokers, other, message)
    assert seen.keys() == {"v1", "v3", "v4"} and seen["v1"] == 2


async def test_a_group_is_as_durable_as_its_topic(brokers: HttpCluster) -> None:
    await brokers.create("a", "t")
    await brokers.create("a", "r", replicas=2, acks="replicated")
    for topic, acks in (("t", "stored"), ("r", "replicated")):
        made = (await brokers.up["b"].client.put(f"/v1/topics/{topic}/groups/g")).raise_for_status().json()
        assert made["settings"]["acks"] == acks
    changed = await brokers.up["c"].client.put("/v1/topics/t/groups/g", json={"acks": "replicated"})
    assert changed.raise_for_status().json()["settings"]["acks"] == "replicated"


async def test_what_was_read_from_the_store_before_its_owner_heard_of_it_may_be_committed(brokers: HttpCluster) -> None:
    """A storm found it: another broker had read the file, and the commit was told that it lay beyond the end."""

    async def commit(segment: int, position: int) -> httpx.Response:
        positions = [{"segment": segment, "epoch": 1, "position": position}]
        return await ask(brokers, "a", "commits", member_id="m", positions=positions)

    await brokers.create("a", "t", segments=3)
    key_of, ends = dict[int, str](), Counter[int]()
    while len(key_of) < 3:
        (position,) = await brokers.publish("a", "t", (key := f"k{ends.total()}", "first"))
        key_of[position["segment"]] = key
        ends[position["segment"]] += 1
    (await ask(brokers, "a", "members", member_id="m")).raise_for_status()
    owners = {segment: names[0] for segment, names in enumerate(await brokers.brokers_of("a", "t"))}
    assert sorted(owners.values()) == ["a", "b", "c"], "one of them coordinates the group"
    for segment, owner in owners.items():
        folder, end = f"topics/t{SEGMENT_FILES}segment={segment}/", ends[segment]
        brokers.stores[owner].hold_answers(folder)
        before = await _files(brokers, folder)
        publishing = asyncio.create_task(brokers.publish("a", "t", (key_of[segment], "second")))
        await until(partial(_has_more_files, brokers, folder, before))
        check_problem(await commit(segment, end + 2), 422, "invalid-request")
        committing = asyncio.create_task(commit(segment, end + 1))
        if owner == await coordinator(brokers, "a"):
            # It has to wait for its own put. If that failed, the message would not be there.
            await asyncio.wait([committing], timeout=0.05)
            assert not committing.done()
            brokers.stores[owner].release()
        assert (await committing).raise_for_status().json()["committed"][0]["in_force"] == end + 1
        brokers.stores[owner].release()
        await publishing


async def _files(brokers: HttpCluster, folder: str) -> int:
    return len([each async for each in brokers.store.list(folder)])


async def _has_more_files(brokers: HttpCluster, folder: str, before: int) -> bool:
    return await _files(brokers, folder) > before
