"""Splitting and merging by hand over HTTP: what is answered, what is refused, and reading across it."""

import asyncio
from typing import Any

import httpx
import pytest

from filer.slots import SLOTS, slot_of
from tests.support.broker.http_broker import HttpBroker
from tests.support.broker.problems import check_problem
from tests.support.cluster.http_cluster import HttpCluster, until

T = "/v1/topics/t"


async def create(broker: HttpBroker, **config: Any) -> None:
    (await broker.client.put(T, json=config)).raise_for_status()


async def split(broker: HttpBroker, segment: int, **body: Any) -> httpx.Response:
    return await broker.client.post(f"{T}/segments/{segment}/split", json=body)


async def merge(broker: HttpBroker, segment: int, other: object) -> httpx.Response:
    return await broker.client.post(f"{T}/segments/{segment}/merge", json={"with": other})


async def publish(broker: HttpBroker, *numbers: int) -> None:
    messages = [{"key": f"k{number % 10}", "value": number} for number in numbers]
    (await broker.client.post(f"{T}/messages", json={"messages": messages})).raise_for_status()


async def read_from(broker: HttpBroker, marker: str | None = None, limit: int = 1000) -> tuple[list[int], str]:
    params: dict[str, Any] = {"limit": limit} | ({} if marker is None else {"marker": marker})
    page = (await broker.client.get(f"{T}/messages", params=params)).raise_for_status().json()
    return [message["value"] for message in page["messages"]], page["marker"]


async def test_a_split_answers_with_the_new_segments(broker: HttpBroker) -> None:
    await create(broker)
    answer = (await broker.client.post(f"{T}/segments/0/split")).raise_for_status().json()
    assert (answer["topic"], answer["version"]) == ("t", 3)
    shared = {"state": "open", "predecessors": [0], "successors": [], "brokers": [broker.broker.id]}
    assert answer["segments"] == [
        {"segment": 1, "range": [0, 32768], **shared},
        {"segment": 2, "range": [32768, SLOTS], **shared},
    ]
    assert (await split(broker, 0)).json() == answer, "asked again"
    found = (await broker.client.get(T)).json()["segments"]
    assert [(s["segment"], s["state"], s["successors"]) for s in found] == [
        (0, "sealed", [1, 2]), (1, "open", []), (2, "open", []),
    ]  # fmt: skip


async def test_a_split_at_slots_and_into_parts_and_a_merge(memory_broker: HttpBroker) -> None:
    broker = memory_broker
    await create(broker)
    assert [s["range"] for s in (await split(broker, 0, at=[10, 20])).json()["segments"]] == [
        [0, 10], [10, 20], [20, SLOTS],
    ]  # fmt: skip
    (merged,) = (await merge(broker, 2, 1)).raise_for_status().json()["segments"]
    assert (merged["range"], merged["predecessors"]) == ([0, 20], [1, 2])
    assert [s["range"] for s in (await split(broker, 4, parts=4)).json()["segments"]] == [
        [0, 5], [5, 10], [10, 15], [15, 20],
    ]  # fmt: skip


async def test_a_split_shares_the_load_where_that_is_known(memory_broker: HttpBroker) -> None:
    """Ten keys, all in one half: equal widths would leave the other without any."""
    broker = memory_broker
    await create(broker, target={"messages": 0.001}, scaling={"enabled": False})
    keys = [key for key in (f"k{n}" for n in range(100)) if slot_of(key.encode()) < 8192][:10]
    body = {"messages": [{"key": key, "value": 1} for key in keys] * 20}
    for _ in range(2):
        # Slots are counted from when the segment is first seen to be busy.
        (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()
        await broker.broker.traffic_reporter.report()
    first = (await split(broker, 0)).raise_for_status().json()
    assert (await split(broker, 0, parts=2)).json() == first, "asked again, by when nobody knows of the load"
    left, right = (s["range"] for s in first["segments"])
    shares = [sum(start <= slot_of(key.encode()) < stop for key in keys) for start, stop in (left, right)]
    assert min(shares) >= 4 and sum(shares) == 10


async def test_what_is_refused(memory_broker: HttpBroker) -> None:
    broker = memory_broker
    await create(broker, segments=3, min_segments=3, max_segments=4)
    check_problem(await broker.client.post("/v1/topics/none/segments/0/split"), 404, "topic-not-found")
    check_problem(await split(broker, 9), 404, "segment-not-found", "open: 0, 1, 2")
    check_problem(await split(broker, 0, parts=3), 409, "segment-limit", "max_segments is 4")
    check_problem(await merge(broker, 0, 1), 409, "segment-limit", "min_segments is 3")
    check_problem(await merge(broker, 0, 2), 409, "not-neighbours", "[0, 21845) and [43690, 65536)")
    check_problem(await split(broker, 0, at=[21845]), 422, "invalid-request", "[0, 21845)", "21845")
    await split(broker, 0)
    problem = check_problem(await merge(broker, 0, 1), 409, "segment-sealed", "is followed by 3, 4")
    assert problem["successors"] == [3, 4] and not problem["retryable"]
    assert len(await broker.end_offsets("t")) == 5


@pytest.mark.parametrize(
    ("how", "body", "words"),
    [
        ("split", [], "an object such as"),
        ("split", {"att": [5]}, "did you mean 'at'?"),
        ("split", {"at": [5], "parts": 2}, "not both"),
        ("split", {"at": 5}, "a list of slots"),
        ("split", {"at": ["5"]}, "a list of slots"),
        ("split", {"at": []}, "cannot be cut at no slot"),
        ("split", {"at": [True]}, "a list of slots"),
        ("split", {"parts": 1}, "from 2 to 65536"),
        ("split", {"parts": 2.0}, "from 2 to 65536"),
        ("merge", {}, "the id of a neighbouring segment"),
        ("merge", {"with": "1"}, "the id of a neighbouring segment"),
        ("merge", {"with": -1}, "no segment -1"),
    ],
)
async def test_bodies_that_make_no_sense(memory_broker: HttpBroker, how: str, body: Any, words: str) -> None:
    await create(memory_broker)
    response = await memory_broker.client.post(f"{T}/segments/0/{how}", json=body)
    status, slug = (404, "segment-not-found") if words == "no segment -1" else (422, "invalid-request")
    check_problem(response, status, slug, words)


async def test_a_body_that_is_too_large_is_told_where_payloads_of_the_topic_go(memory_broker: HttpBroker) -> None:
    await create(memory_broker)
    response = await split(memory_broker, 0, at=[*range(1, 20_000)])
    assert check_problem(response, 413, "body-too-large")["upload"] == f"{T}/uploads"


async def test_a_marker_stays_valid_over_generations(broker: HttpBroker) -> None:
    """Taken before, within and after; each key's numbers go on where they were."""
    await create(broker)
    await publish(broker, *range(100))
    seen, marker = await read_from(broker, limit=37)
    oldest = marker
    for generation in range(6):
        await publish(broker, *range(100 + generation * 40, 120 + generation * 40))
        first = generation * 3
        await split(broker, first)
        await publish(broker, *range(120 + generation * 40, 140 + generation * 40))
        assert (await merge(broker, first + 2, first + 1)).json()["segments"][0]["segment"] == first + 3
        some, marker = await read_from(broker, marker, limit=29)
        seen += some
    rest, _ = await read_from(broker, marker)
    assert in_order(seen + rest, 340)
    assert in_order(seen[:37] + (await read_from(broker, oldest))[0], 340)
    assert in_order((await read_from(broker))[0], 340)


def in_order(numbers: list[int], count: int) -> bool:
    """All are there once, and those of each key ascend."""
    assert sorted(numbers) == list(range(count))
    return all([n for n in numbers if n % 10 == key] == list(range(key, count, 10)) for key in range(10))


async def test_empty_segments_split_and_merge(broker: HttpBroker) -> None:
    await create(broker)
    await split(broker, 0)
    await split(broker, 1)
    await split(broker, 2, parts=3)
    await merge(broker, 3, 4)
    _, marker = await read_from(broker)
    await publish(broker, *range(50))
    assert in_order((await read_from(broker, marker))[0], 50)
    assert in_order((await read_from(broker))[0], 50)


async def test_two_who_ask_at_once_for_the_same_and_for_different_things(memory_broker: HttpBroker) -> None:
    await create(memory_broker, segments=2)
    answers = await asyncio.gather(
        split(memory_broker, 0), split(memory_broker, 0), split(memory_broker, 1), split(memory_broker, 1, parts=3)
    )
    assert answers[0].json()["segments"] == answers[1].json()["segments"]
    assert sorted(answer.status_code for answer in answers[2:]) == [200, 409]
    segments = (await memory_broker.client.get(T)).json()["segments"]
    assert sum(segment["state"] == "open" for segment in segments) in (4, 5)


async def test_any_broker_of_a_cluster_may_be_asked() -> None:
    """Owners are others than who is asked; successors go to all."""
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", "c")
        await cluster.create("a", "t")
        for number in range(30):
            await cluster.publish("b", "t", (f"k{number % 10}", str(number)))
        opened = (await split(cluster.up["c"], 0, parts=6)).raise_for_status().json()["segments"]
        assert len({segment["brokers"][0] for segment in opened}) == 3
        for number in range(30, 60):
            await cluster.publish("abc"[number % 3], "t", (f"k{number % 10}", str(number)))
        await merge(cluster.up["b"], 2, 1)

        async def all_know() -> bool:
            return all([len(await cluster.brokers_of(name, "t")) == 5 for name in "abc"])

        await until(all_know)
        for number in range(60, 90):
            await cluster.publish("abc"[number % 3], "t", (f"k{number % 10}", str(number)))
        for name in "abc":
            assert in_order([int(value) for value in await cluster.values(name, "t")], 90)
    finally:
        await cluster.stop_all()
