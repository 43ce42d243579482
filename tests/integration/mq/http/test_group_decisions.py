"""Acks of many messages in one request: others are served in between, and whoever is cut off may ask again."""

import asyncio

import pytest

from filer.errors import SegmentMoved
from filer.stores.memory_store import MemoryStore
from mq.groups.to_decide import AT_ONCE
from mq.limits.turns import Line
from tests.support.broker.group_requests import G, T, claim, decide, group, publish
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

MANY = 10 * AT_ONCE + 1


async def test_they_are_decided_in_turns_and_a_repeat_is_answered_as_the_first_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    wait = Line.wait

    async def counted(line: Line) -> None:
        await wait(line)
        steps.append("step")
        asyncio.get_running_loop().call_soon(steps.append, "others")

    monkeypatch.setattr(Line, "wait", counted)
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put(T)
        await publish(broker, *map(str, range(MANY)))
        claimed = await claim(broker, max=MANY)
        for verb in ("extensions", "acks", "acks"):
            steps.clear()
            told = (await decide(broker, verb, claimed)).raise_for_status().json()
            assert (told["accepted"], told["lost"], len(told["results"])) == (MANY, 0, MANY)
            assert [each["accepted"] for each in told["results"]] == [[[n, n + 1]] for n in range(MANY)]
            assert steps.count("step") > MANY / AT_ONCE
            assert "step step" not in " ".join(steps)
        assert (await group(broker))["lag"]["messages"] == 0


async def test_cut_off_half_way_the_rest_is_still_with_its_consumer(
    memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *map(str, range(MANY)))
    claimed = await claim(memory_broker, max=MANY)
    wait, turns = Line.wait, 0

    async def stops(line: Line) -> None:
        nonlocal turns
        turns += 1
        if turns == MANY // AT_ONCE:
            raise SegmentMoved("the process stops here")
        await wait(line)

    with monkeypatch.context() as patched:
        patched.setattr(Line, "wait", stops)
        # Whoever meets a coordinator that is none any more asks again by itself.
        told = (await decide(memory_broker, "acks", claimed)).raise_for_status().json()
    assert turns > MANY // AT_ONCE
    assert (told["accepted"], told["lost"]) == (MANY, 0)
    assert (await group(memory_broker))["lag"]["messages"] == 0


async def test_who_reads_pages_does_not_wait_for_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Line] = []
    wait = Line.wait

    async def noted(line: Line) -> None:
        lines.append(line)
        await wait(line)

    monkeypatch.setattr(Line, "wait", noted)
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put(T)
        await publish(broker, *map(str, range(MANY)))
        lines.clear()
        claimed = await claim(broker, max=MANY)
        (await decide(broker, "acks", claimed)).raise_for_status()
        turns = broker.broker.turns
        assert lines and turns.pages not in lines
        (await broker.client.get(f"{T}/messages")).raise_for_status()
        assert turns.pages in lines


@pytest.mark.parametrize("place", [0, 127, 128, MANY - 1])
async def test_what_is_wrong_is_named_by_its_place(memory_broker: HttpBroker, place: int) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, "a")
    token = (await claim(memory_broker))["messages"][0]["claim"]
    parts: list[dict[str, object]] = [{"claim": token, "id": "0-0"} for _ in range(MANY)]
    parts[place] = {"claim": 7}
    problem = check_problem(
        await memory_broker.client.post(f"{G}/acks", json={"messages": parts}), 422, "invalid-request"
    )
    assert f"messages.{place}.claim" in problem["detail"]
    parts[place] = {"claim": token[:-2], "id": "0-0"}
    problem = check_problem(
        await memory_broker.client.post(f"{G}/acks", json={"messages": parts}), 422, "invalid-request"
    )
    assert f"messages.{place}: " in problem["detail"]


async def test_messages_that_are_named_twice_are_refused_however_many_there_are(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *map(str, range(MANY)))
    claimed = await claim(memory_broker, max=MANY)
    parts = [{"claim": each["claim"], "id": each["id"]} for each in claimed["messages"]]
    answer = await memory_broker.client.post(f"{G}/acks", json={"messages": [*parts, parts[3]]})
    problem = check_problem(answer, 422, "invalid-request")
    assert f"messages.{MANY}: it names messages that messages.3 names too" in problem["detail"]
    assert (await group(memory_broker))["lag"]["messages"] == MANY


@pytest.mark.parametrize(("verb", "body"), [("acks", {}), ("releases", {"delay_seconds": 0}), ("extensions", {})])
@pytest.mark.parametrize("newest_first", [True, False])
async def test_two_claims_of_a_message_are_decided_one_by_one(
    memory_broker: HttpBroker, verb: str, body: dict[str, object], newest_first: bool
) -> None:
    """Whoever has claimed a message again, after its lease had run out, may name both of its deliveries."""
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"lease_seconds": 1, "backoff_seconds": [0]})
    await publish(memory_broker, "a")
    claimed = [(await claim(memory_broker))["messages"][0], (await claim(memory_broker, wait=20))["messages"][0]]
    assert [each["deliveries"] for each in claimed] == [1, 2]
    if newest_first:
        claimed.reverse()
    told = (await decide(memory_broker, verb, {"messages": claimed}, **body)).raise_for_status().json()
    assert (told["accepted"], told["lost"]) == (1, 1)
    assert {each["claim"]: (each["accepted"], each["lost"]) for each in told["results"]} == {
        each["claim"]: ([[0, 1]], []) if each["deliveries"] == 2 else ([], [[0, 1]]) for each in claimed
    }
