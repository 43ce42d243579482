"""Dead letters over HTTP: looked at, redriven once each, or discarded; and a look at what is not dead."""

import asyncio
from typing import Any

import pytest

from filer.stores.memory_store import MemoryStore
from mq.groups import dead_letter_count
from tests.support.broker.group_requests import G, T, claim, decide, group, publish, until_dead, values
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.store.dying_store import DyingStore


async def kill(broker: HttpBroker, *names: str, of: str = G, **headers: str) -> None:
    """Publish messages, and have group `of` give them up."""
    await publish(broker, *names, **headers)
    claimed = (await broker.client.post(f"{of}/claims", json={})).json()
    parts = {"messages": [{"claim": m["claim"], "id": m["id"]} for m in claimed["messages"]]}
    given_up = await broker.client.post(f"{of}/releases", json={**parts, "dead": True, "reason": "no"})
    given_up.raise_for_status()
    async with asyncio.timeout(20):
        while (await broker.client.get(of)).json()["lag"]["messages"]:
            await asyncio.sleep(0.02)


async def look(broker: HttpBroker, state: str, **query: Any) -> dict[str, Any]:
    answer = await broker.client.get(f"{G}/messages", params={"state": state, **query})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


async def seen(broker: HttpBroker, state: str, **query: Any) -> list[str]:
    return [message["value"] for message in (await look(broker, state, **query))["messages"]]


async def redrive(broker: HttpBroker, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await broker.client.post(f"{G}/redrive", json=body)).raise_for_status().json()
    return answer


async def test_dead_letters_are_redriven_once_each(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await kill(memory_broker, *"abc", colour="red")
    assert await seen(memory_broker, "dead") == ["a", "b", "c"]
    assert [m["deliveries"] for m in (await look(memory_broker, "dead"))["messages"]] == [1, 1, 1]
    assert await redrive(memory_broker, max=2) == {"redriven": 2, "more": True}
    assert await seen(memory_broker, "dead") == ["c"]
    assert await redrive(memory_broker) == {"redriven": 1, "more": False}
    assert await redrive(memory_broker) == {"redriven": 0, "more": False}
    again = await claim(memory_broker)
    assert [(m["key"], m["value"], m["headers"]) for m in again["messages"]] == [
        (name, name, {"colour": "red", "braid-redriven-group": "g"}) for name in "abc"
    ]
    (await decide(memory_broker, "acks", again)).raise_for_status()
    told = await group(memory_broker)
    assert (told["lag"]["messages"], told["dead"], told["dead_total"]) == (0, 0, 3)
    # One that dies again is another dead letter.
    await kill(memory_broker, "d")
    assert await seen(memory_broker, "dead") == ["d"]


async def test_dead_letters_are_redriven_by_id_or_discarded(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await kill(memory_broker, *"abcd")
    ids = {m["value"]: m["id"] for m in (await look(memory_broker, "dead"))["messages"]}
    assert await redrive(memory_broker, ids=[ids["c"], ids["a"]]) == {"redriven": 2, "before": 0}
    assert await redrive(memory_broker, ids=[ids["c"], ids["d"]]) == {"redriven": 1, "before": 1}
    assert await values(memory_broker) == ["a", "c", "d"]
    assert await redrive(memory_broker, ids=[ids["b"]], discard=True) == {"discarded": 1, "before": 0}
    assert await seen(memory_broker, "dead") == []
    problem = check_problem(
        await memory_broker.client.post(f"{G}/redrive", json={"ids": ["0-99"]}), 404, "message-not-found"
    )
    assert "0-99 is no dead letter of group 'g'" in problem["detail"]


async def test_each_group_has_its_own_dead_letters(memory_broker: HttpBroker) -> None:
    other = f"{T}/groups/other"
    await memory_broker.client.put(T)
    await kill(memory_broker, "a")
    await kill(memory_broker, "b", of=other)  # which gives up "a" as well
    assert await seen(memory_broker, "dead") == ["a"]
    theirs = (await memory_broker.client.get(f"{other}/messages?state=dead")).json()["messages"]
    assert [m["value"] for m in theirs] == ["a", "b"]
    assert await redrive(memory_broker) == {"redriven": 1, "more": False}
    check_problem(
        await memory_broker.client.post(f"{G}/redrive", json={"ids": [theirs[0]["id"]]}), 404, "message-not-found"
    )


async def test_a_delay_and_an_expiry_are_not_for_what_is_redriven(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await kill(
        memory_broker, "a", **{"braid-expires-at": "2999-01-01T00:00:00Z", "braid-deliver-at": "2020-01-01T00:00:00Z"}
    )
    await redrive(memory_broker)
    (message,) = (await claim(memory_broker))["messages"]
    assert message["headers"] == {"braid-redriven-group": "g"}


async def test_a_payload_by_reference_comes_back(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await client.put(T)
    upload = (await client.post(f"{T}/uploads", json={"size": 5})).raise_for_status().json()
    (await client.put(upload["url"], content=b"large")).raise_for_status()
    message = {"key": "k", "ref": {"upload": upload["upload"]}}
    (await client.post(f"{T}/messages", json={"messages": [message]})).raise_for_status()
    claimed = await claim(memory_broker)
    (await decide(memory_broker, "releases", claimed, dead=True)).raise_for_status()
    (letter,) = await until_dead(memory_broker, 1)
    assert letter["value"] is None and "uploads/" in letter["headers"]["braid-dead-payload"]
    await redrive(memory_broker)
    (back,) = (await claim(memory_broker))["messages"]
    assert (await client.get(back["ref"]["url"])).content == b"large"


@pytest.mark.parametrize("uri", ["../other/uploads/x", "uploads/x", "topic.json"])
async def test_a_forged_reference_is_refused(memory_broker: HttpBroker, uri: str) -> None:
    """Who may publish to the topic of dead letters must not read other objects by it."""
    client = memory_broker.client
    await client.put(T)
    await client.put(G)
    await client.put("/v1/topics/t.dead")
    reference = f'{{"uri": "{uri}", "size": 1, "etag": "x", "sha256": null}}'
    headers = {"braid-dead-topic": "t", "braid-dead-group": "g", "braid-dead-payload": reference}
    forged = {"messages": [{"value": "x", "headers": headers}]}
    (await client.post("/v1/topics/t.dead/messages", json=forged)).raise_for_status()
    problem = check_problem(await client.post(f"{G}/redrive"), 422, "invalid-reference")
    assert 'discard it with {"ids": ["0-0"], "discard": true}' in problem["detail"]
    assert await redrive(memory_broker, ids=["0-0"], discard=True) == {"discarded": 1, "before": 0}
    assert await redrive(memory_broker) == {"redriven": 0, "more": False}


@pytest.mark.parametrize(
    ("body", "status", "slug", "says"),
    [
        ({"max": 0}, 422, "invalid-request", "max"),
        ({"ids": []}, 422, "invalid-request", "ids"),
        ({"ids": ["zero"]}, 422, "invalid-request", "ids"),
        ({"max": 1, "ids": ["0-0"]}, 422, "invalid-request", "not both"),
        ({"id": ["0-0"]}, 422, "invalid-request", "did you mean 'ids'"),
        ({"ids": ["0-0"]}, 404, "message-not-found", "there are no dead letters"),
    ],
)
async def test_wrong_redrives(
    memory_broker: HttpBroker, body: dict[str, Any], status: int, slug: str, says: str
) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    problem = check_problem(await memory_broker.client.post(f"{G}/redrive", json=body), status, slug)
    assert says in problem["detail"]


@pytest.mark.parametrize("discard", [False, True])
@pytest.mark.parametrize("clean", [True, False])
async def test_those_that_are_open_are_counted(discard: bool, clean: bool) -> None:
    """Of this group alone, and by whoever coordinates it next, which knows nothing but the records."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await kill(broker, *"abcd")
        await kill(broker, *"abcd", of=f"{T}/groups/h")
        assert await counts(broker) == (4, 4, 4)
        ids = {m["value"]: m["id"] for m in (await look(broker, "dead"))["messages"]}
        await redrive(broker, ids=[ids["b"]], discard=discard)
        assert await counts(broker) == (3, 4, 3)
        await redrive(broker, max=2, discard=discard)
        assert await counts(broker) == (1, 4, 1)
        store.dead = not clean
    async with http_broker(kept) as broker:
        assert await counts(broker) == (1, 4, 1)
        await redrive(broker, discard=discard)
        assert await counts(broker) == (0, 4, 0)
        assert (await broker.client.get(f"{T}/groups/h")).json()["dead"] == 8
        # Letters that are gone with their topic are open no more.
        (await broker.client.delete("/v1/topics/t.dead")).raise_for_status()
        assert (await broker.client.get(f"{T}/groups/h")).json()["dead"] == 0


async def counts(broker: HttpBroker) -> tuple[int, int, int]:
    told = await group(broker)
    return told["dead"], told["dead_total"], len(await seen(broker, "dead"))


async def begin_again(broker: HttpBroker, what: str) -> None:
    """Delete the group, or the topic with it, and make it anew."""
    (await broker.client.delete({"group": G, "topic": T}[what])).raise_for_status()
    await broker.client.put(T)
    (await broker.client.put(G)).raise_for_status()


@pytest.mark.parametrize("what", ["group", "topic"])
async def test_letters_of_an_earlier_group_of_that_name_are_none_of_its_own(
    memory_broker: HttpBroker, what: str
) -> None:
    await memory_broker.client.put(T)
    await kill(memory_broker, "a", "b")
    (first, *_) = (await look(memory_broker, "dead"))["messages"]
    await begin_again(memory_broker, what)
    assert await counts(memory_broker) == (0, 0, 0)
    assert await redrive(memory_broker) == {"redriven": 0, "more": False}
    for discard in (False, True):
        body = {"ids": [first["id"]], "discard": discard}
        answer = await memory_broker.client.post(f"{G}/redrive", json=body)
        assert "of an earlier group" in check_problem(answer, 404, "message-not-found")["detail"]
    await kill(memory_broker, "c")
    given_up = ["a", "b", "c"] if what == "group" else ["c"]
    assert await counts(memory_broker) == (len(given_up),) * 3
    assert await seen(memory_broker, "dead") == given_up
    in_topic = (await memory_broker.client.get("/v1/topics/t.dead/messages")).json()["messages"]
    assert sorted(m["value"] for m in in_topic) == sorted(["a", "b", *given_up])


async def test_a_reset_leaves_a_group_its_letters(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await kill(memory_broker, "a")
    (await memory_broker.client.post(f"{G}/reset", json={"to": "latest"})).raise_for_status()
    await kill(memory_broker, "b")
    assert await counts(memory_broker) == (2, 2, 2)
    assert await redrive(memory_broker) == {"redriven": 2, "more": False}


async def test_letters_of_earlier_versions_are_those_of_the_topic_that_is_there(memory_broker: HttpBroker) -> None:
    """They name no group but by its name, and where their message was."""
    client = memory_broker.client
    await client.put(T)
    await kill(memory_broker, "a")
    headers = {"braid-dead-topic": "t", "braid-dead-group": "g", "braid-dead-origin": "0-0"}
    letters = {"messages": [{"key": "old", "value": "old", "headers": headers}]}
    (await client.post("/v1/topics/t.dead/messages", json=letters)).raise_for_status()
    assert await seen(memory_broker, "dead") == ["a", "old"] and (await group(memory_broker))["dead"] == 2
    await begin_again(memory_broker, "topic")
    assert await counts(memory_broker) == (0, 0, 0)


async def test_letters_are_counted_some_at_a_time(memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until all are looked through, no more count than were given up."""
    monkeypatch.setattr(dead_letter_count, "PAGE_ROWS", 2)
    monkeypatch.setattr(dead_letter_count, "MOST_PAGES", 1)
    await memory_broker.client.put(T)
    await kill(memory_broker, *"abc")
    await kill(memory_broker, *"abc", of=f"{T}/groups/h")
    for _ in range(8):
        assert (await group(memory_broker))["dead"] == 3


@pytest.mark.parametrize("types", [{"value_type": "json"}, {"key_type": "binary"}])
async def test_a_topic_of_other_types_takes_no_dead_letters(memory_broker: HttpBroker, types: dict[str, str]) -> None:
    client = memory_broker.client
    await client.put(T, json={"key_type": "string", "value_type": "string"})
    await client.put("/v1/topics/other", json={"key_type": "string", "value_type": "string"} | types)
    problem = check_problem(await client.put(G, json={"dead_letter": {"topic": "other"}}), 422, "invalid-config")
    assert "dead letters of topic 't' cannot go to 'other'" in problem["detail"]
    (await client.put(G)).raise_for_status()
    check_problem(await client.put(G, json={"dead_letter": {"topic": "other"}}), 422, "invalid-config")
    # Nor does the default.
    await client.put("/v1/topics/t.dead", json={"key_type": "string", "value_type": "string"} | types)
    problem = check_problem(await client.put(f"{T}/groups/h"), 422, "invalid-config")
    assert "name another topic in dead_letter, or null for none" in problem["detail"]
    (await client.put(f"{T}/groups/h", json={"dead_letter": None})).raise_for_status()
    # A group that has it by now may be configured all the same.
    (await client.put(G, json={"lease_seconds": 20})).raise_for_status()


@pytest.mark.parametrize(
    ("path", "letters"),
    [("topics", {"value_type": "json"}), ("topic-groups", {"topics": ["other"]})],
    ids=["other types", "a topic group"],
)
async def test_a_claim_makes_no_group_that_a_put_would_refuse(
    memory_broker: HttpBroker, path: str, letters: dict[str, Any]
) -> None:
    """It made one whose dead letters could go nowhere."""
    client = memory_broker.client
    await client.put(T)
    (await client.put(f"/v1/{path}/t.dead", json=letters)).raise_for_status()
    await publish(memory_broker, "a")
    refused = check_problem(await client.put(G), 422, "invalid-config")
    claimed = check_problem(await client.post(f"{G}/claims", json={}), 422, "invalid-config")
    assert (claimed["title"], claimed["detail"]) == (refused["title"], refused["detail"])
    check_problem(await client.get(G), 404, "group-not-found")
    # One that is there by now is claimed from whatever becomes of that topic.
    (await client.put(G, json={"dead_letter": None})).raise_for_status()
    assert len((await claim(memory_broker))["messages"]) == 1


async def test_dead_letters_wait_for_a_topic_that_takes_them(
    memory_broker: HttpBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Their topic may be deleted and created again with other types: the group tells, and goes on when it can."""
    client = memory_broker.client
    await client.put(T)
    await client.put(G)
    (await client.put("/v1/topics/t.dead", json={"value_type": "json"})).raise_for_status()
    await publish(memory_broker, "a", "b")
    (await decide(memory_broker, "releases", await claim(memory_broker), dead=True)).raise_for_status()
    async with asyncio.timeout(20):
        while (told := await group(memory_broker)).get("dead_letters_delayed") is None:
            await asyncio.sleep(0.02)
    delayed = told["dead_letters_delayed"]
    assert delayed["messages"] == 2 and "cannot go to 't.dead'" in delayed["reason"]
    (await client.put(G, json={"dead_letter": {"topic": "letters"}})).raise_for_status()
    async with asyncio.timeout(20):
        while (told := await group(memory_broker))["dead"] < 2:
            await asyncio.sleep(0.02)
    assert "dead_letters_delayed" not in told and await seen(memory_broker, "dead") == ["a", "b"]
    assert sum("dead_letters_delayed" in each.getMessage() for each in caplog.records) == 1


@pytest.mark.parametrize("length", [195, 196, 200])
async def test_a_topic_with_a_long_name_has_dead_letters(memory_broker: HttpBroker, length: int) -> None:
    client, names = memory_broker.client, [f"{'x' * (length - 1)}{end}" for end in "ab"]
    letters: set[str] = set()
    for name in names:
        (await client.put(f"/v1/topics/{name}")).raise_for_status()
        (await client.post(f"/v1/topics/{name}/messages", json={"messages": [{"value": name}]})).raise_for_status()
        of = f"/v1/topics/{name}/groups/g"
        claimed = (await client.post(f"{of}/claims", json={})).raise_for_status().json()["messages"]
        parts = {"messages": [{"claim": each["claim"]} for each in claimed]}
        (await client.post(f"{of}/releases", json={**parts, "dead": True})).raise_for_status()
        async with asyncio.timeout(20):
            while not (dead := (await client.get(f"{of}/messages?state=dead")).raise_for_status().json()["messages"]):
                await asyncio.sleep(0.02)
        assert [each["value"] for each in dead] == [name]
        letters.add((await client.get(of)).json()["settings"]["dead_letter"]["topic"])
    assert len(letters) == 2 and all(each.endswith(".dead") and len(each) <= 200 for each in letters)
    # Dead letters of dead letters would go round for ever.
    for name in letters:
        told = (await client.put(f"/v1/topics/{name}/groups/g")).raise_for_status().json()
        assert told["settings"]["dead_letter"] is None


async def test_a_group_without_dead_letters(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    assert await redrive(memory_broker) == {"redriven": 0, "more": False}
    assert await look(memory_broker, "dead") == {"messages": [], "next": None}
    await memory_broker.client.put(G, json={"dead_letter": None})
    check_problem(await memory_broker.client.post(f"{G}/redrive"), 409, "no-dead-letters")
    check_problem(await memory_broker.client.get(f"{G}/messages?state=dead"), 409, "no-dead-letters")
    check_problem(await memory_broker.client.get(f"{G}/messages?state=none"), 422, "invalid-request")
    missing = await memory_broker.client.get(f"{G}/messages")
    assert missing.json()["detail"] == "state: it is missing"
    check_problem(await memory_broker.client.get(f"{G}/messages?state=dead&after=x"), 422, "invalid-request")


@pytest.mark.parametrize("before", [True, False], ids=["before the put", "behind the put"])
@pytest.mark.parametrize("request_", range(3), ids=["the choice", "the letters", "that they are stored"])
async def test_a_redrive_that_is_broken_off_is_finished_once(request_: int, before: bool) -> None:
    """Killed at each put of a redrive: the next broker has the letters in the topic once each, asked again or not."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await kill(broker, *"abc")
        store.die_at(request_, before=before)
        await broker.client.post(f"{G}/redrive", json={})
        store.dead = True
    async with http_broker(kept) as broker:
        await redrive(broker)
        await redrive(broker)
        messages = (await broker.client.get(f"{T}/messages")).json()["messages"]
        assert [m["value"] for m in messages] == [*"abc", *"abc"]


async def test_a_redrive_whose_choice_is_stored_is_finished_without_anybody_asking() -> None:
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await kill(broker, *"abc")
        store.die_at(0, before=False)
        await broker.client.post(f"{G}/redrive", json={})
    async with http_broker(kept) as broker, asyncio.timeout(20):
        await group(broker)  # the groups are taken over when their topic is used
        while len((await broker.client.get(f"{T}/messages")).json()["messages"]) < 6:
            await asyncio.sleep(0.02)


async def test_redrives_outlive_a_reset_and_a_checkpoint(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await kill(memory_broker, *"abc")
    await redrive(memory_broker, max=1)
    (await memory_broker.client.post(f"{G}/reset", json={"to": "latest", "force": True})).raise_for_status()
    assert await seen(memory_broker, "dead") == ["b", "c"]
    assert await redrive(memory_broker) == {"redriven": 2, "more": False}
    assert await values(memory_broker) == ["b", "c"]


async def test_the_backlog_and_what_is_in_flight_can_be_looked_at(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"backoff_seconds": [60]})
    await publish(memory_broker, *"abcdef")
    assert await seen(memory_broker, "backlog") == [*"abcdef"]  # nobody has asked for any yet
    held, given_back = await claim(memory_broker, max=2), await claim(memory_broker, max=1)
    (await decide(memory_broker, "releases", given_back)).raise_for_status()
    await publish(memory_broker, "g")
    flying = (await look(memory_broker, "in_flight"))["messages"]
    assert [(m["value"], m["deliveries"]) for m in flying] == [("a", 1), ("b", 1)]
    assert all(25 < m["lease_seconds"] <= 30 for m in flying)
    waiting = (await look(memory_broker, "backlog"))["messages"]
    assert [(m["value"], m["deliveries"], "deliver_at" in m) for m in waiting] == [
        ("c", 1, True),
        *((name, 0, False) for name in "defg"),
    ]
    (await decide(memory_broker, "acks", held)).raise_for_status()
    assert await seen(memory_broker, "in_flight") == []
    # Nobody was given anything by it.
    assert await values(memory_broker) == [*"defg"]


async def test_a_look_goes_on_by_pages(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    await publish(memory_broker, *"abcde")
    pages: list[list[str]] = []
    after: dict[str, str] = {}
    while True:
        page = await look(memory_broker, "backlog", limit=2, **after)
        pages.append([m["value"] for m in page["messages"]])
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert len((await look(memory_broker, "backlog", max_bytes=1))["messages"]) == 1
