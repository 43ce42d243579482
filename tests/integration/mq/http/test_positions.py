"""Positions of a whole topic by segment, and the files of one segment: what readers with offsets of their own ask."""

import asyncio
from typing import Any

from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Fetched
from filer.topic.positions import from_marker
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

T = "/v1/topics/t"


async def publish(broker: HttpBroker, *values: int) -> None:
    for value in values:
        body = {"messages": [{"key": f"k{number}", "value": value} for number in range(10)]}
        (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()


async def positions(broker: HttpBroker, **params: Any) -> dict[int, int]:
    """What is answered, having seen that its marker is the same."""
    answer = (await broker.client.get(f"{T}/positions", params=params)).raise_for_status().json()
    found = {each["segment"]: each["offset"] for each in answer["positions"]}
    assert answer["topic"] == "t" and from_marker("t", answer["marker"]) == found
    return found


async def test_positions_at_both_ends_and_in_time(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, 0, 1)
    page = (await memory_broker.client.get(f"{T}/messages", params={"limit": 20})).json()
    await memory_broker.client.post(f"{T}/segments/0/split")
    await publish(memory_broker, 2)
    assert await positions(memory_broker, **{"from": "earliest"}) == {0: 0}
    ends = await memory_broker.end_offsets("t")
    assert await positions(memory_broker) == {1: ends[1], 2: ends[2]}
    assert await positions(memory_broker, **{"from": page["messages"][10]["timestamp"]}) == {0: 10}


class FileGets(ForwardingStore):
    """Remembers which segment files were read."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.keys: list[str] = []

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        if key.endswith(".parquet"):
            self.keys.append(key)
        return await super().get(key, start=start, stop=stop)


async def test_a_time_is_found_in_one_file() -> None:
    """However many files follow, although none is in memory; in none at all if it is that of a file's first message."""
    store, large = FileGets(), {"messages": [{"value": "x" * 30_000}] * 5}
    async with http_broker(store, flush_interval=0.05) as broker:
        await broker.client.put(T)
        for _ in range(10):
            # The first is a file by itself, and the others are one together.
            await asyncio.gather(*(broker.client.post(f"{T}/messages", json=large) for _ in range(3)))
        answer = await broker.client.get(f"{T}/messages", params={"limit": 1000, "max_bytes": 2**23})
        times = [message["timestamp"] for message in answer.raise_for_status().json()["messages"]]
        listed = (await broker.client.get(f"{T}/segments/0/files")).json()["files"]
    assert len(times) == 150
    first = listed[1]["base_offset"]
    within = next(each for each in listed if each["first_timestamp"] < each["last_timestamp"])
    second = times.index(within["last_timestamp"])
    async with http_broker(store, front_store_bytes=2**20) as broker:
        # Which files there are, and from when, is read when the topic is first used.
        assert await positions(broker, **{"from": times[first]}) == {0: first}
        store.keys.clear()
        assert await positions(broker, **{"from": times[first]}) == {0: first}
        assert not store.keys
        assert await positions(broker, **{"from": times[second]}) == {0: second}
        assert {key.rpartition("/")[2] for key in store.keys} == {within["uri"].rpartition("/")[2]}


async def test_a_marker_goes_on_to_the_successors_of_what_it_has_drained(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, 0)
    half, whole = [
        (await memory_broker.client.get(f"{T}/messages", params={"limit": limit})).json()["marker"] for limit in (5, 10)
    ]
    await memory_broker.client.post(f"{T}/segments/0/split")
    assert await positions(memory_broker, marker=half) == {0: 5}
    assert await positions(memory_broker, marker=whole) == {1: 0, 2: 0}


async def test_positions_that_are_none(memory_broker: HttpBroker) -> None:
    check_problem(await memory_broker.client.get(f"{T}/positions"), 404, "topic-not-found")
    await memory_broker.client.put(T)
    check_problem(
        await memory_broker.client.get(f"{T}/positions", params={"marker": "x"}), 400, "invalid-marker", "not a marker"
    )
    check_problem(
        await memory_broker.client.get(f"{T}/positions", params={"from": "noon"}), 422, "invalid-request", "RFC 3339"
    )
    both = {"marker": "x", "from": "latest"}
    check_problem(await memory_broker.client.get(f"{T}/positions", params=both), 422, "invalid-request", "not both")


async def files(broker: HttpBroker, segment: int = 0, **params: int) -> tuple[list[tuple[int, int]], int | None]:
    answer = await broker.client.get(f"{T}/segments/{segment}/files", params=params)
    document = answer.raise_for_status().json()
    bounds = [(each["base_offset"], each["end_offset"]) for each in document["files"]]
    assert all(each["segment"] == segment for each in document["files"])
    return bounds, document["next_offset"]


async def test_files_that_hold_some_offsets(broker: HttpBroker) -> None:
    await broker.client.put(T)
    await publish(broker, 0, 1, 2, 3)
    assert await files(broker) == ([(0, 10), (10, 20), (20, 30), (30, 40)], None)
    assert await files(broker, offset=15, end_offset=31) == ([(10, 20), (20, 30), (30, 40)], None)
    assert await files(broker, offset=15, end_offset=30) == ([(10, 20), (20, 30)], None)
    assert await files(broker, offset=40) == ([], None)
    assert await files(broker, limit=3) == ([(0, 10), (10, 20), (20, 30)], 30)
    assert await files(broker, offset=30, limit=3) == ([(30, 40)], None)


async def test_the_seal_is_no_file_to_read(broker: HttpBroker) -> None:
    await broker.client.put(T)
    await publish(broker, 0)
    await broker.client.post(f"{T}/segments/0/split")
    assert await files(broker) == ([(0, 10)], None)
    assert await files(broker, 1) == ([], None)


async def test_files_of_what_is_not_there(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    path = f"{T}/segments/7/files"
    check_problem(await memory_broker.client.get(path), 404, "segment-not-found", "no segment 7")
    path = f"{T}/segments/0/files"
    check_problem(
        await memory_broker.client.get(path, params={"offset": 5}),
        422,
        "invalid-request",
        "beyond the end of segment 0",
    )
    await memory_broker.client.delete(T)
    await memory_broker.client.put(T)
    check_problem(await memory_broker.client.get(path), 410, "position-expired", "has been removed")
