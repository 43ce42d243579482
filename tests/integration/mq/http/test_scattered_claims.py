"""Claims whose messages lie scattered: one name for many ranges, also at the coordinator after the one that gave it."""

from typing import Any

import orjson
import pyarrow as pa

from filer.stores.memory_store import MemoryStore
from tests.support.broker.group_requests import G, T, claim, group
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.store.dying_store import DyingStore

ARROW = {"accept": "application/vnd.apache.arrow.stream"}


async def scattered(broker: HttpBroker, **asked: Any) -> tuple[list[int], list[dict[str, Any]]]:
    """The offsets of the messages that come, and the claims."""
    body = {"scattered": True, "wait": 5, **asked}
    answer = (await broker.client.post(f"{G}/claims", json=body, headers=ARROW)).raise_for_status()
    table = pa.ipc.open_stream(answer.content).read_all()
    claims: list[dict[str, Any]] = orjson.loads(table.schema.metadata[b"braid-claims"])["claims"]
    told = [offset for each in claims for offset in offsets_of(each)]
    assert told == table["_offset"].to_pylist()
    return told, claims


def offsets_of(told: dict[str, Any]) -> list[int]:
    ranges = told.get("ranges", [[told["from"], told["to"]]])
    assert (told["from"], told["to"]) == (ranges[0][0], ranges[-1][1])
    return [offset for start, stop in ranges for offset in range(start, stop)]


async def acks(broker: HttpBroker, *parts: dict[str, Any]) -> dict[str, Any]:
    answer = await broker.client.post(f"{G}/acks", json={"messages": parts})
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


async def publish_keys(broker: HttpBroker, keys: str) -> None:
    lines = b"".join(b'{"key":"%c","value":1}\n' % key for key in keys.encode())
    headers = {"content-type": "application/x-ndjson"}
    (await broker.client.post(f"{T}/messages", content=lines, headers=headers)).raise_for_status()


async def test_one_name_for_what_lies_between_messages_of_a_hot_key(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"order": "key"})
    await publish_keys(memory_broker, "hbhchdhe")
    first = await claim(memory_broker, max=1, wait=5)  # the hot key is with somebody
    offsets, (told,) = await scattered(memory_broker)
    assert offsets == [1, 3, 5, 7] and told["ranges"] == [[1, 2], [3, 4], [5, 6], [7, 8]]
    name = told["claim"]

    answer = await acks(memory_broker, {"claim": name, "id": "0-3"})
    assert (answer["accepted"], answer["results"][0]["accepted"]) == (1, [[3, 4]])
    for wrong in ({"id": "0-2"}, {"from": 2, "to": 3}, {"from": 0, "to": 2}, {"id": "1-3"}):
        refused = await memory_broker.client.post(f"{G}/acks", json={"messages": [{"claim": name, **wrong}]})
        check_problem(refused, 422, "invalid-request")
    twice = [{"claim": name}, {"claim": name, "id": "0-5"}]
    check_problem(await memory_broker.client.post(f"{G}/acks", json={"messages": twice}), 422, "invalid-request")

    # Of what lies between, nothing is acked by the name of what lies around it.
    answer = await acks(memory_broker, {"claim": name, "from": 1, "to": 6})
    assert answer["results"][0]["accepted"] == [[1, 2], [3, 4], [5, 6]]
    for _ in range(2):  # and all of it, also again
        answer = await acks(memory_broker, {"claim": name})
        assert (answer["accepted"], answer["lost"]) == (4, 0)
    assert (await group(memory_broker))["lag"]["messages"] == 4
    assert (await acks(memory_broker, {"claim": first["claims"][0]["claim"]}))["accepted"] == 1


async def test_what_is_given_back_comes_again_and_the_name_is_over(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"order": "key"})
    await publish_keys(memory_broker, "hbhchdhe")
    await claim(memory_broker, max=1, wait=5)
    _, (told,) = await scattered(memory_broker)
    part = {"messages": [{"claim": told["claim"], "from": 3, "to": 6}]}
    longer = await memory_broker.client.post(f"{G}/extensions", json={**part, "lease_seconds": 20})
    assert longer.json()["results"][0]["accepted"] == [[3, 4], [5, 6]]
    released = await memory_broker.client.post(f"{G}/releases", json={**part, "delay_seconds": 0})
    assert released.json()["results"][0]["accepted"] == [[3, 4], [5, 6]]
    offsets, (again,) = await scattered(memory_broker)
    assert (offsets, again["deliveries"]) == ([3, 5], 2)
    answer = await acks(memory_broker, {"claim": told["claim"]})
    assert (answer["results"][0]["accepted"], answer["results"][0]["lost"]) == ([[1, 2], [7, 8]], [[3, 4], [5, 6]])
    assert (await acks(memory_broker, {"claim": again["claim"]}))["accepted"] == 2


async def test_the_next_coordinator_takes_the_ack_of_a_name_that_it_did_not_give() -> None:
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"order": "key"})
        await publish_keys(broker, "hbhchdhe")
        await claim(broker, max=1, wait=5)
        _, (told,) = await scattered(broker)
        store.dead = True
    async with http_broker(kept) as broker:
        answer = await acks(broker, {"claim": told["claim"]})
        assert answer["results"][0]["accepted"] == [[1, 2], [3, 4], [5, 6], [7, 8]]
        assert (await group(broker))["lag"]["messages"] == 4


async def test_what_does_not_fit_goes_back(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"order": "key"})
    await publish_keys(memory_broker, "hbhchdhe")
    await claim(memory_broker, max=1, wait=5)
    offsets, claims = await scattered(memory_broker, max_bytes=1)
    assert offsets and offsets == [1, 3, 5, 7][: len(offsets)] and len(offsets) < 4
    rest, more = await scattered(memory_broker)
    assert offsets + rest == [1, 3, 5, 7]
    answer = await acks(memory_broker, *({"claim": each["claim"]} for each in (*claims, *more)))
    assert (answer["accepted"], answer["lost"]) == (4, 0)


async def test_they_come_as_arrow_alone(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    check_problem(await memory_broker.client.post(f"{G}/claims", json={"scattered": True}), 422, "invalid-request")
