"""Consumer groups over HTTP: claims, acks, releases, dead letters, and what is wrong with requests."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest

from filer.clock import ManualClock
from filer.stores.memory_store import MemoryStore
from tests.support.broker.group_requests import G, T, claim, decide, group, publish, publish_keys, until_dead, values
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.store.dying_store import DyingStore


async def test_each_message_goes_to_one_consumer_and_is_acked_once(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *"abcde")
    first, second = await claim(memory_broker, max=2), await claim(memory_broker)
    assert [m["value"] for m in first["messages"]] == ["a", "b"]
    assert [m["value"] for m in second["messages"]] == ["c", "d", "e"]
    assert (await claim(memory_broker))["messages"] == []
    assert {m["deliveries"] for m in first["messages"]} == {1}
    assert (await group(memory_broker))["lag"]["messages"] == 5
    for _ in range(2):  # a repeated ack is answered as the first time
        answer = (await decide(memory_broker, "acks", first)).raise_for_status().json()
        assert (answer["accepted"], answer["lost"]) == (2, 0)
    # A whole claim may be acked by its token alone.
    whole = {"messages": [{"claim": second["claims"][0]["claim"]}]}
    assert (await memory_broker.client.post(f"{G}/acks", json=whole)).json()["accepted"] == 3
    told = await group(memory_broker)
    assert (told["lag"], told["in_flight"]) == ({"messages": 0, "seconds": 0.0}, 0)


async def test_what_is_released_comes_again_first(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, "a")
    claimed = await claim(memory_broker)
    await publish(memory_broker, "b")
    (await decide(memory_broker, "releases", claimed, delay_seconds=0)).raise_for_status()
    check_problem(await decide(memory_broker, "acks", claimed), 409, "claim-lost")
    again = await claim(memory_broker)
    assert [(m["value"], m["deliveries"]) for m in again["messages"]] == [("a", 2), ("b", 1)]


async def test_a_repeated_release_is_answered_as_the_first_time(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, "a", "b")
    first, second = await claim(memory_broker, max=1), await claim(memory_broker)
    for _ in range(2):
        assert (await decide(memory_broker, "releases", first, delay_seconds=0)).json()["accepted"] == 1
        assert (await decide(memory_broker, "releases", second, dead=True)).json()["accepted"] == 1
    again = await claim(memory_broker, wait=5)
    assert [(m["value"], m["deliveries"]) for m in again["messages"]] == [("a", 2)]
    assert (await decide(memory_broker, "releases", first, delay_seconds=0)).json()["accepted"] == 1
    assert (await decide(memory_broker, "acks", again)).json()["accepted"] == 1
    check_problem(await decide(memory_broker, "acks", first), 409, "claim-lost")
    check_problem(await decide(memory_broker, "acks", second), 409, "claim-lost")


async def test_an_ack_after_the_lease_counts_until_somebody_else_has_the_message(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"lease_seconds": 1, "backoff_seconds": [0]})
    await publish(memory_broker, "a", "b")
    late = await claim(memory_broker, max=1)
    other = await claim(memory_broker, wait=10)
    assert [m["value"] for m in other["messages"]] == ["b"]
    assert [m["value"] for m in (await claim(memory_broker, max=1, wait=10))["messages"]] == ["a"]
    check_problem(await decide(memory_broker, "acks", late), 409, "claim-lost")


async def test_an_extended_lease_runs_longer(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"lease_seconds": 1, "backoff_seconds": [0]})
    await publish(memory_broker, "a")
    claimed = await claim(memory_broker)
    for _ in range(4):
        assert await values(memory_broker, wait=0.5) == []
        (await decide(memory_broker, "extensions", claimed)).raise_for_status()
    (await decide(memory_broker, "acks", claimed)).raise_for_status()


async def test_delays_and_back_off_are_kept(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"backoff_seconds": [1]})
    now = datetime.now(UTC)
    await publish(memory_broker, "later", **{"braid-deliver-at": (now + timedelta(seconds=1)).isoformat()})
    await publish(memory_broker, "gone", **{"braid-expires-at": (now - timedelta(seconds=1)).isoformat()})
    await publish(memory_broker, "now")
    claimed = await claim(memory_broker)
    assert [m["value"] for m in claimed["messages"]] == ["now"]
    (await decide(memory_broker, "releases", claimed)).raise_for_status()
    found = [message for _ in range(2) for message in (await claim(memory_broker, wait=10, max=1))["messages"]]
    assert {m["value"] for m in found} == {"now", "later"} and (await group(memory_broker))["expired"] == 1
    assert timedelta(seconds=1) <= datetime.now(UTC) - now < timedelta(seconds=3)


async def test_a_message_says_when_it_may_be_delivered() -> None:
    """Time goes on when it is told to: on a busy machine the publishes alone may take longer than the delay."""
    clock = ManualClock()
    async with http_broker(MemoryStore(clock=clock), clock=clock) as broker, asyncio.timeout(20):
        await broker.client.put(T)
        messages = [{"value": "later", "delay_seconds": 0.5}, {"value": "now", "expires_at": "2999-01-01T00:00:00Z"}]
        published = await broker.client.post(f"{T}/messages", json={"messages": messages})
        published.raise_for_status()
        for parameters in ({"expires_at": "2999-01-01T00:00:00Z"}, {"key": "k", "delay_seconds": "0.5"}):
            answer = await broker.client.post(f"{T}/messages", content=b"alone", params=parameters)
            answer.raise_for_status()
            answer = await broker.client.post(f"{T}/messages", json={"n": 1}, params=parameters)
            answer.raise_for_status()
        assert await values(broker) == ["now", "alone", {"n": 1}]
        await clock.advance(0.49)
        assert await values(broker) == []
        await clock.advance(0.01)
        assert [value for _ in range(3) for value in await values(broker, max=1, wait=10)] == [
            "later",
            "alone",
            {"n": 1},
        ]


async def test_what_nobody_can_work_on_becomes_a_dead_letter(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"max_deliveries": 2, "backoff_seconds": [0]})
    await publish(memory_broker, "a", colour="red")
    for _ in range(2):
        released = await claim(memory_broker, wait=5)
        (await decide(memory_broker, "releases", released, reason="no such customer")).raise_for_status()
    (letter,) = await until_dead(memory_broker, 1)
    assert (letter["key"], letter["value"]) == ("a", "a")
    assert len(letter["headers"].pop("braid-dead-group-id")) == 26
    assert letter["headers"] == {
        "colour": "red",
        "braid-dead-reason": "no such customer",
        "braid-dead-topic": "t",
        "braid-dead-group": "g",
        "braid-dead-origin": "0-0",
        "braid-dead-deliveries": "2",
    }
    # At once, where the consumer says so.
    await publish(memory_broker, "b")
    (await decide(memory_broker, "releases", await claim(memory_broker), dead=True)).raise_for_status()
    assert [m["value"] for m in await until_dead(memory_broker, 2)] == ["a", "b"]


async def test_what_nobody_has_begun_to_work_on_is_not_given_up(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"max_deliveries": 1, "backoff_seconds": [60]})
    await publish(memory_broker, "a")
    for delivery in (1, 2, 3):
        claimed = await claim(memory_broker, wait=5)
        assert claimed["messages"][0]["deliveries"] == delivery
        back = {"untouched": True, "delay_seconds": 0, "reason": "stopped"}
        (await decide(memory_broker, "releases", claimed, **back)).raise_for_status()
    assert (await group(memory_broker))["dead"] == 0
    claimed = await claim(memory_broker, wait=5)
    both = await decide(memory_broker, "releases", claimed, dead=True, untouched=True)
    assert "both true" in check_problem(both, 422, "invalid-request")["detail"]
    (await decide(memory_broker, "releases", claimed, reason="broken")).raise_for_status()
    assert [m["headers"]["braid-dead-deliveries"] for m in await until_dead(memory_broker, 1)] == ["4"]


async def test_what_there_is_is_divided_among_all_who_wait(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    waiting = [asyncio.create_task(values(memory_broker, max=100, wait=20)) for _ in range(20)]
    while (await group(memory_broker))["waiting_consumers"] < 20:
        await asyncio.sleep(0.01)
    await publish(memory_broker, *(str(n) for n in range(100)))
    shares = await asyncio.gather(*waiting)
    assert sorted(int(value) for share in shares for value in share) == list(range(100))
    assert all(3 <= len(share) <= 7 for share in shares)


async def test_messages_of_a_key_come_one_after_the_other(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"order": "key", "backoff_seconds": [0]})
    await publish_keys(memory_broker, "a1", "a2", "b1", "a3", "b2")
    first = await claim(memory_broker, max=1)
    assert [m["value"] for m in first["messages"]] == ["a1"]
    other = await claim(memory_broker)  # one consumer may have several of a key
    assert [m["value"] for m in other["messages"]] == ["b1", "b2"]
    assert (await claim(memory_broker))["messages"] == []
    (await decide(memory_broker, "releases", first)).raise_for_status()
    again = await claim(memory_broker, max=2, wait=5)
    assert [(m["value"], m["deliveries"]) for m in again["messages"]] == [("a1", 2)]
    (await decide(memory_broker, "acks", again)).raise_for_status()
    assert await values(memory_broker, wait=5) == ["a2", "a3"]
    problem = check_problem(await memory_broker.client.put(G, json={"order": "none"}), 422, "invalid-config")
    assert "order of group 'g' is 'key' and stays so" in problem["detail"]


async def test_messages_of_a_key_keep_their_order_over_segments_that_are_read_in_one_look(
    memory_broker: HttpBroker,
) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"order": "key"})
    await publish_keys(memory_broker, "a1")
    split = await memory_broker.client.post(f"{T}/segments/0/split")
    left, right = (each["segment"] for each in split.raise_for_status().json()["segments"])
    await publish_keys(memory_broker, "a2")
    merged = await memory_broker.client.post(f"{T}/segments/{left}/merge", json={"with": right})
    merged.raise_for_status()
    await publish_keys(memory_broker, "a3")
    assert await values(memory_broker, wait=5) == ["a1", "a2", "a3"]


async def test_the_order_of_keys_outlives_a_coordinator() -> None:
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"order": "key", "lease_seconds": 1, "backoff_seconds": [0]})
        await publish_keys(broker, "a1", "a2", "b1")
        assert await values(broker, max=1) == ["a1"]
        store.dead = True
    async with http_broker(kept) as broker:
        # Nobody has got the other key's, so it comes at once.
        other = await claim(broker)
        assert [m["value"] for m in other["messages"]] == ["b1"]
        (await decide(broker, "acks", other)).raise_for_status()
        found = await claim(broker, max=1, wait=10)
        assert [(m["value"], m["deliveries"]) for m in found["messages"]] == [("a1", 2)]
        (await decide(broker, "acks", found)).raise_for_status()
        assert await values(broker, wait=5) == ["a2"]


async def test_claims_as_arrow(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *"abc")
    accept = {"accept": "application/vnd.apache.arrow.stream"}
    answer = (await memory_broker.client.post(f"{G}/claims", json={}, headers=accept)).raise_for_status()
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table["value"].to_pylist() == [b"a", b"b", b"c"] and table["deliveries"].to_pylist() == [1, 1, 1]
    (told,) = orjson.loads(table.schema.metadata[b"braid-claims"])["claims"]
    part = {"claim": told["claim"], "from": 1}  # to its end
    answer = (await memory_broker.client.post(f"{G}/acks", json={"messages": [part]})).json()
    assert answer["results"][0]["accepted"] == [[1, 3]]
    assert (await group(memory_broker))["lag"]["messages"] == 1


async def test_claims_go_on_over_splits_and_merges(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *(f"a{n}" for n in range(10)))
    split = await memory_broker.client.post(f"{T}/segments/0/split")
    left, right = (each["segment"] for each in split.raise_for_status().json()["segments"])
    await publish(memory_broker, *(f"b{n}" for n in range(10)))
    merged = await memory_broker.client.post(f"{T}/segments/{left}/merge", json={"with": right})
    merged.raise_for_status()
    await publish(memory_broker, *(f"c{n}" for n in range(10)))
    seen: list[str] = []
    while len(seen) < 30:
        claimed = await claim(memory_broker, max=7, wait=5)
        seen += [message["value"] for message in claimed["messages"]]
        (await decide(memory_broker, "acks", claimed)).raise_for_status()
    assert sorted(seen) == sorted(f"{letter}{n}" for letter in "abc" for n in range(10))
    assert (await group(memory_broker))["lag"]["messages"] == 0


async def test_a_page_has_as_many_bytes_as_were_asked_for(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *(f"{n}" * 1000 for n in range(5)))
    few = await claim(memory_broker, max_bytes=1500)
    assert len(few["messages"]) == 1 and few["claims"][0]["to"] == 1
    rest = await claim(memory_broker)
    # Nobody has seen them before.
    assert [m["deliveries"] for m in rest["messages"]] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lease_second": 3}, "did you mean 'lease_seconds'"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"lease_seconds": 31_536_000}, "lease_seconds"),
        ({"mode": "streams"}, "mode"),
        ({"backoff_seconds": []}, "backoff_seconds"),
        ({"dead_letter": {"topic": "__groups"}}, "names that begin with __ are internal"),
        ({"dead_letter": {"topic": "t"}}, "cannot go to 't' itself"),
        ({"from": 5}, "from is earliest, latest or an RFC 3339 time"),
    ],
)
async def test_wrong_settings(memory_broker: HttpBroker, settings: dict[str, Any], says: str) -> None:
    await memory_broker.client.put(T)
    problem = check_problem(await memory_broker.client.put(G, json=settings), 422, "invalid-config")
    assert says in problem["detail"]
    check_problem(await memory_broker.client.get(G), 404, "group-not-found")


async def test_settings(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, "a")
    made = await memory_broker.client.put(G, json={"from": "latest", "max_deliveries": 3})
    assert made.status_code == 201 and made.json()["created"] and made.json()["settings"]["max_deliveries"] == 3
    assert await values(memory_broker) == []
    assert made.json()["differs"] == {}
    changed = await memory_broker.client.put(G, json={"lease_seconds": 60})
    assert changed.status_code == 200 and changed.json()["settings"]["max_deliveries"] == 3
    assert changed.json()["differs"] == {}
    # It stays where it is, and the answer says so. What can be no beginning is refused as ever.
    again = await memory_broker.client.put(G, json={"from": "earliest"})
    assert again.status_code == 200 and not again.json()["created"]
    assert again.json()["differs"] == {"from": {"wanted": "earliest", "actual": None}}
    assert await values(memory_broker) == []
    wrong = await memory_broker.client.put(G, json={"from": "erliest"})
    assert "from must be earliest, latest, or" in check_problem(wrong, 422, "invalid-request")["detail"]
    assert (await group(memory_broker))["settings"]["lease_seconds"] == 60
    assert (await memory_broker.client.delete(G)).status_code == 204
    check_problem(await memory_broker.client.get(G), 404, "group-not-found")
    assert await values(memory_broker) == ["a"]  # another group of that name, from the beginning


@pytest.mark.parametrize(
    ("path", "body", "status", "slug", "says"),
    [
        (f"{T}/groups/none/acks", {"messages": [{"claim": "x"}]}, 404, "group-not-found", "PUT /v1/topics/t/groups"),
        (f"{G}/acks", {"messages": [{"claim": "x"}]}, 422, "invalid-request", "not a claim of this group"),
        (f"{G}/acks", {"messages": []}, 422, "invalid-request", "messages"),
        (f"{G}/acks", {}, 422, "invalid-request", "messages"),
        (f"{G}/acks", {"message": []}, 422, "invalid-request", "did you mean 'messages'"),
        (f"{G}/claims", {"max": 0}, 422, "invalid-request", "max"),
        (f"{G}/claims", {"max": 1_000_000}, 422, "invalid-request", "max"),
        (f"{G}/claims", {"wait": 3600}, 422, "invalid-request", "wait"),
        (f"{G}/redrive", {"ids": ["x"]}, 422, "invalid-request", "ids.0: it must be the id of a message, such as 0-17"),
        (f"{G}/redrive", [], 422, "invalid-request", 'such as {"max": 100}'),
        (f"{G}/reset", [], 422, "invalid-request", 'such as {"to": "earliest"}'),
        (f"{G}/claims", {"lease_seconds": 31_536_000}, 422, "invalid-config", "at most 30 s"),
        (f"{G}/claims", {"lease_seconds": 1.7e308}, 422, "invalid-config", "at most 30 s"),
        (f"{G}/claims?max=3", {}, 422, "invalid-request", "'max' is no parameter here: send it in the body"),
        (f"{G}/claims", {"lease_seconds": 31}, 422, "invalid-config", "at most 30 s"),
        ("/v1/topics/none/groups/g/claims", {}, 404, "topic-not-found", "PUT /v1/topics/none"),
        (f"{T}/groups/g/nothing", {}, 404, "not-found", "no such path"),
    ],
)
async def test_bad_requests_say_what_would_be_right(
    memory_broker: HttpBroker, path: str, body: Any, status: int, slug: str, says: str
) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    problem = check_problem(await memory_broker.client.post(path, json=body), status, slug)
    assert says in problem["detail"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"from": 1, "to": 1}, "[1, 1) is not within its claim"),
        ({"from": 2, "to": 1}, "[2, 1) is not within its claim"),
        ({"from": 0, "to": 9}, "[0, 9) is not within its claim"),
        ({"id": "0-0", "from": 0}, "give id, or from and to"),
        ({"id": "7-0"}, "no message of its claim"),
        ({"id": "zero"}, "no message of its claim"),
        ({"from": -1}, "must be at least 0"),
    ],
)
async def test_ranges_that_are_none_of_the_claim(memory_broker: HttpBroker, wrong: dict[str, Any], says: str) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *"abc")
    token = (await claim(memory_broker))["claims"][0]["claim"]
    answer = await memory_broker.client.post(f"{G}/acks", json={"messages": [{"claim": token, **wrong}]})
    assert says in check_problem(answer, 422, "invalid-request")["detail"]
    twice = {"messages": [{"claim": token, "from": 0, "to": 2}, {"claim": token, "id": "0-1"}]}
    answer = await memory_broker.client.post(f"{G}/acks", json=twice)
    assert "names messages that messages.0 names too" in check_problem(answer, 422, "invalid-request")["detail"]
    # A claim of another group is none of this one.
    theirs = await memory_broker.client.post(f"{T}/groups/other/claims", json={})
    body = {"messages": [{"claim": theirs.json()["claims"][0]["claim"]}]}
    check_problem(await memory_broker.client.post(f"{G}/acks", json=body), 422, "invalid-request")
    assert (await group(memory_broker))["in_flight"] == 3


async def test_a_client_that_goes_away_takes_nothing_with_it(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    with pytest.raises(httpx.ReadTimeout):
        await memory_broker.client.post(f"{G}/claims", json={"wait": 20}, timeout=0.2)
    await publish(memory_broker, "a")
    async with asyncio.timeout(10):
        while [(m["value"], m["deliveries"]) for m in (await claim(memory_broker, wait=1))["messages"]] != [("a", 1)]:
            pass


async def test_claims_side_by_side_that_find_nothing_are_told_so(memory_broker: HttpBroker) -> None:
    """Those that were given something must not break off the look for which the others wait."""
    await memory_broker.client.put(T)
    await publish(memory_broker, *"abc")
    found = await asyncio.gather(*(values(memory_broker, max=1) for _ in range(6)))
    assert sorted(found) == [[], [], [], ["a"], ["b"], ["c"]]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_a_restart_forgets_no_ack(clean: bool) -> None:
    """After a clean stop leases go on. After a kill, what was claimed comes again once a lease has run."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"lease_seconds": 1, "backoff_seconds": [0]})
        await publish(broker, *"abc")
        acked, held = await claim(broker, max=1), await claim(broker, max=1)
        (await decide(broker, "acks", acked)).raise_for_status()
        store.dead = not clean
    async with http_broker(kept) as broker:
        assert (await decide(broker, "acks", acked)).json()["accepted"] == 1
        assert (await decide(broker, "acks", held)).json()["accepted"] == 1
        found = (await claim(broker, wait=10))["messages"]
        assert [message["value"] for message in found] == ["c"]
        assert (await group(broker))["lag"]["messages"] == 1


async def test_a_broker_that_ends_keeps_nobody_waiting_for_another_coordinator(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, "a")
    claimed = await claim(memory_broker)
    await memory_broker.broker.drain()
    async with asyncio.timeout(5):
        check_problem(await decide(memory_broker, "acks", claimed), 503, "draining", "shutting down")
