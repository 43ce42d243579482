"""Splits and merges by hand in a cluster: several at once, against a failover, and of segments without a message."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from filer.slots import SLOTS
from filer.topic.topic_state import TopicState, broken_invariants
from tests.support.broker.problems import check_problem
from tests.support.cluster.http_cluster import PATIENCE_SECONDS, HttpCluster, until

T = "/v1/topics/t"
KEYS = 10


async def split(brokers: HttpCluster, name: str, segment: int, **body: Any) -> httpx.Response:
    return await brokers.up[name].client.post(f"{T}/segments/{segment}/split", json=body)


async def merge(brokers: HttpCluster, name: str, segment: int, other: int) -> httpx.Response:
    return await brokers.up[name].client.post(f"{T}/segments/{segment}/merge", json={"with": other})


@pytest.fixture
def unled(brokers: HttpCluster) -> HttpCluster:
    """Nobody moves segments to spread the load, so that what is asked for is all that happens."""
    brokers.membership.leaders = set()
    return brokers


def opened(answer: httpx.Response) -> list[int]:
    return [each["segment"] for each in answer.raise_for_status().json()["segments"]]


async def publish(brokers: HttpCluster, start: int, stop: int, names: Sequence[str] = "abc") -> None:
    """Numbers through each broker in turn, one request each."""
    for number in range(start, stop):
        await brokers.publish(names[number % len(names)], "t", (f"k{number % KEYS}", str(number)))


async def check_read(
    brokers: HttpCluster, start: int, stop: int, names: Sequence[str] = "abc", **position: str
) -> None:
    """Each broker gives these numbers from the position on, once, those of a key in their order."""
    for name in names:
        page = await brokers.get(name, f"{T}/messages", limit=10_000, **position)
        check_numbers([int(message["value"]) for message in page["messages"]], start, stop)


def check_numbers(numbers: list[int], start: int, stop: int) -> None:
    assert sorted(numbers) == list(range(start, stop))
    for key in range(KEYS):
        of_key = [number for number in numbers if number % KEYS == key]
        assert of_key == sorted(of_key)


async def state_of(brokers: HttpCluster) -> TopicState:
    """The record on the store; what is open covers every slot, and each successor was opened once."""
    record = await next(iter(brokers.up.values())).broker.catalogue.read("t")
    assert record is not None
    assert list(broken_invariants(record.state)) == []
    return record.state


async def under_way(brokers: HttpCluster) -> bool:
    return (await state_of(brokers)).transition is not None


async def test_splits_that_are_asked_for_while_one_is_under_way(unled: HttpCluster) -> None:
    """Of the same segment only one is made; of another one afterwards; what contradicts is told."""
    await unled.create("a", "t", segments=2)
    await publish(unled, 0, 30)
    for store in unled.stores.values():
        store.hold()
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        first = group.create_task(split(unled, "a", 0, at=[100]))
        await until(lambda: under_way(unled))
        same = group.create_task(split(unled, "b", 0, at=[100]))
        otherwise = group.create_task(split(unled, "c", 0, at=[200]))
        merged = group.create_task(merge(unled, "b", 0, 1))
        another = group.create_task(split(unled, "c", 1, parts=3))
        for store in unled.stores.values():
            store.release()
    assert opened(first.result()) == opened(same.result()) == [2, 3]
    for refused in (otherwise.result(), merged.result()):
        problem = check_problem(refused, 409, "segment-sealed", "segment 0 of topic 't' is sealed")
        assert problem["successors"] == [2, 3]
    assert opened(another.result()) == [4, 5, 6]
    await publish(unled, 30, 60)
    await check_read(unled, 0, 60)
    assert [s.range for s in (await state_of(unled)).open_segments][:2] == [(0, 100), (100, SLOTS // 2)]


async def test_a_merge_and_a_split_of_its_neighbour_at_once(unled: HttpCluster) -> None:
    """One of them is made, and the other's asker is told what came instead: never half of each."""
    await unled.create("a", "t", segments=8)
    await publish(unled, 0, 30)
    for left in range(0, 8, 2):
        merging, cutting = merge(unled, "a", left, left + 1), split(unled, "b", left + 1)
        merged, cut = await asyncio.gather(merging, cutting)
        won, lost = (merged, cut) if merged.status_code == 200 else (cut, merged)
        assert check_problem(lost, 409, "segment-sealed")["successors"] == opened(won)
    await publish(unled, 30, 60)
    await check_read(unled, 0, 60)


async def test_rows_that_a_merge_brings_together_keep_the_order_of_their_request() -> None:
    """Their owner had accepted them for two segments, and stored none before others sealed both in its stead."""
    brokers = HttpCluster()
    brokers.membership.leaders = set()
    try:
        await brokers.start("a")
        await brokers.create("a", "t", segments=2)
        await brokers.start("b")
        brokers.stores["a"].hold()
        rows = [(f"k{number}", str(number)) for number in range(20)]
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            publishing = group.create_task(brokers.publish("a", "t", *rows))

            async def accepted() -> bool:
                writers = brokers.up["a"].broker.topics["t"].writers
                return sum(writers[segment].accepted_end for segment in (0, 1)) == len(rows)

            await until(accepted)
            assert opened(await merge(brokers, "b", 0, 1)) == [2]
            brokers.stores["a"].release()
        assert publishing.result() == [{"segment": 2, "offset": 0, "count": 20}]
        assert await brokers.values("b", "t") == [value for _, value in rows]
    finally:
        await brokers.stop_all()


async def test_a_merge_with_a_neighbour_that_was_just_split(unled: HttpCluster) -> None:
    """Asked by the old ids it is refused, whatever the broker has heard; by the new ones it is made."""
    await unled.create("a", "t", segments=3)
    await publish(unled, 0, 30)
    [low, high] = opened(await split(unled, "a", 1))
    for name in "abc":
        for pair in ((0, 1), (1, 2), (2, 1)):
            problem = check_problem(await merge(unled, name, *pair), 409, "segment-sealed", "segment 1 of topic 't'")
            assert problem["successors"] == [low, high]
        check_problem(await merge(unled, name, 0, high), 409, "not-neighbours")
    assert opened(await merge(unled, "b", low, 0)) == [high + 1]
    assert opened(await merge(unled, "c", 2, high)) == [high + 2]
    await publish(unled, 30, 60)
    await check_read(unled, 0, 60)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_splits_while_a_failover_is_wanted(brokers: HttpCluster, replicas: int) -> None:
    """Of segments that the lost broker had and of others: each is made, or was overtaken and is told by whom."""
    acks = "replicated" if replicas > 1 else "stored"
    await brokers.create("a", "t", segments=6, replicas=replicas, acks=acks)
    await publish(brokers, 0, 60)
    owners = {segment.id: segment.owner[0] for segment in (await state_of(brokers)).open_segments}
    lost = next(name for name in "abc" if brokers.up[name].broker.coordinator.leads())
    others = sorted(set("abc") - {lost})
    brokers.cut_off(lost)
    async with asyncio.timeout(PATIENCE_SECONDS):
        asked = [split(brokers, others[segment % 2], segment, parts=2) for segment in owners]
        answers = await asyncio.gather(*asked)
        for answer in [each for each in answers if each.status_code != 200]:
            assert answer.status_code in (409, 503), answer.text
            assert answer.json()["type"].rpartition(":")[2] in ("segment-sealed", "transition-under-way"), answer.text
        kept = [segment for segment, owner in owners.items() if owner != lost]
        assert any(answers[segment].status_code == 200 for segment in kept)

        async def whole() -> bool:
            state = await state_of(brokers)
            return state.transition is None and all(s.owner[0] != lost for s in state.open_segments)

        await until(whole)
    await publish(brokers, 60, 120, others)
    await check_read(brokers, 0, 120, others)


async def test_segments_without_a_message(unled: HttpCluster) -> None:
    """Split, split again and merged, they hold up no reader: from the start, a marker or a time, or streaming."""
    await unled.create("a", "t", replicas=2, acks="replicated")
    before = datetime.now(UTC).isoformat()
    markers = [(await unled.get("b", f"{T}/messages"))["marker"]]
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        following = [group.create_task(stream(unled, name, 40)) for name in "abc"]
        [low, high] = opened(await split(unled, "a", 0))
        [lowest, middle] = opened(await split(unled, "b", low))
        markers.append((await unled.get("c", f"{T}/messages"))["marker"])
        [merged] = opened(await merge(unled, "c", middle, high))
        [whole] = opened(await merge(unled, "a", lowest, merged))
        opened(await split(unled, "b", whole, parts=5))
        markers.append((await unled.get("a", f"{T}/messages"))["marker"])
        await publish(unled, 0, 40)
        for each in following:
            check_numbers(await each, 0, 40)
    positions = [{"marker": marker} for marker in markers]
    for position in ({"from": "earliest"}, {"from": before}, *positions):
        await check_read(unled, 0, 40, **position)
    sealed = [s for s in (await state_of(unled)).segments if s.state == "sealed"]
    assert [s.end_offset for s in sealed] == [0] * 7


async def stream(brokers: HttpCluster, name: str, count: int) -> list[int]:
    """The first so many numbers that a subscription from the start is given."""
    numbers: list[int] = []
    client = brokers.up[name].client
    headers = {"accept": "application/x-ndjson"}
    async with client.stream("GET", f"{T}/subscribe", params={"from": "earliest"}, headers=headers) as response:
        async for line in response.aiter_lines():
            document = httpx.Response(200, text=line).json()
            if "message" in document:
                numbers.append(int(document["message"]["value"]))
            if len(numbers) == count:
                break
    return numbers


@pytest.mark.parametrize("replicas", [1, 2])
async def test_segments_without_a_message_outlive_every_broker(brokers: HttpCluster, replicas: int) -> None:
    """All are gone at once after empty segments were sealed and others opened; others go on where they were."""
    await brokers.create("a", "t", replicas=replicas)
    marker = (await brokers.get("b", f"{T}/messages"))["marker"]
    [low, high] = opened(await split(brokers, "a", 0))
    opened(await split(brokers, "b", low))
    for name in "abc":
        brokers.cut_off(name)
    await brokers.start("d", "e")

    async def taken_up() -> bool:
        state = await state_of(brokers)
        return state.transition is None and all(s.owner[0] in "de" for s in state.open_segments)

    await until(taken_up)
    assert {s.range[1] for s in (await state_of(brokers)).open_segments} == {SLOTS // 4, SLOTS // 2, SLOTS}
    [one] = [s.id for s in (await state_of(brokers)).open_segments if s.range[1] == SLOTS]
    assert one > high
    opened(await split(brokers, "d", one))
    await publish(brokers, 0, 40, "de")
    await check_read(brokers, 0, 40, "de")
    await check_read(brokers, 0, 40, "de", marker=marker)
