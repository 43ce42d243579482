"""`acks=replicated` in a cluster in this process: what is answered, readable and kept before the store has it."""

import asyncio
from collections.abc import Sequence

import pytest

from mq.limits.front_store import RECENT_SHARE, TABLE_OVERHEAD_BYTES
from tests.support.cluster.http_cluster import PATIENCE_SECONDS, HttpCluster, until

REPLICATED = {"acks": "replicated", "replicas": 2}
MESSAGES = [(f"key-{n}", f"{n}") for n in range(60)]


async def publish_each(brokers: HttpCluster, through: Sequence[str], messages: Sequence[tuple[str, str]]) -> None:
    """One request a message, all at once, through these brokers in turn; each must be acknowledged."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(
            *(brokers.publish(through[n % len(through)], "t", message) for n, message in enumerate(messages))
        )


async def read_everywhere(brokers: HttpCluster) -> list[list[int]]:
    """What each broker reads, in the order of the values."""
    return [sorted(map(int, await brokers.values(name, "t"))) for name in "abc"]


async def test_it_is_answered_and_read_before_it_is_stored(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=3, **REPLICATED)
    for store in brokers.stores.values():
        store.hold()
    await publish_each(brokers, "abc", MESSAGES)
    assert await brokers.stored_messages("a", "t") == 0
    assert await read_everywhere(brokers) == [list(range(60))] * 3
    for store in brokers.stores.values():
        store.release()

    async def all_stored() -> bool:
        return await brokers.stored_messages("a", "t") == 60

    await until(all_stored)
    assert await read_everywhere(brokers) == [list(range(60))] * 3


async def test_what_is_acknowledged_and_not_stored_is_read_however_much_it_is(brokers: HttpCluster) -> None:
    """The memory for recent messages lets go of the oldest, those of a store that is away included."""
    await brokers.create("a", "t", **REPLICATED)
    [[owner, _]] = await brokers.brokers_of("a", "t")
    front_store = brokers.up[owner].broker.front_store
    front_store.limit_bytes = 1024 * 1024
    brokers.stores[owner].hold()
    for message in MESSAGES:
        await brokers.publish(owner, "t", message)
    assert front_store.recent_bytes < front_store.limit_bytes // RECENT_SHARE < len(MESSAGES) * TABLE_OVERHEAD_BYTES
    assert await read_everywhere(brokers) == [list(range(60))] * 3
    page = await brokers.get("b", "/v1/topics/t/segments/0/messages", offset=7, limit=3)
    assert [message["value"] for message in page["messages"]] == ["7", "8", "9"]
    assert (await brokers.get("b", "/v1/topics/t/messages/0-30"))["value"] == "30"


async def test_stored_waits_for_the_store_in_a_replicated_topic_too(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", **REPLICATED)
    [[owner, _]] = await brokers.brokers_of("a", "t")
    brokers.stores[owner].hold()
    stored = asyncio.create_task(
        brokers.up[owner].client.post("/v1/topics/t/messages", params={"acks": "stored"}, content=b"0")
    )

    async def readable() -> bool:
        return await brokers.values(owner, "t") == ["0"]

    await until(readable)
    # A later one is answered, so it is not for want of time that the earlier one is not.
    await brokers.publish(owner, "t", ("key", "1"))
    assert not stored.done()
    brokers.stores[owner].release()
    assert (await stored).status_code == 200
    assert await brokers.stored_messages(owner, "t") >= 1


@pytest.mark.parametrize("replicas", [2, 3])
async def test_an_owner_is_lost_that_had_stored_nothing(brokers: HttpCluster, replicas: int) -> None:
    await brokers.create("a", "t", acks="replicated", replicas=replicas)
    [[owner, *followers]] = await brokers.brokers_of("a", "t")
    brokers.stores[owner].hold()
    await publish_each(brokers, "abc", MESSAGES[:40])
    assert await brokers.stored_messages(owner, "t") == 0
    brokers.expel(owner)

    async def failed_over() -> bool:
        return owner not in await brokers.owners(followers[0], "t")

    await until(failed_over)
    survivors = [name for name in "abc" if name != owner]
    assert await brokers.stored_messages(followers[0], "t") == 40
    # Of three replicas two are left, which is better than nothing.
    assert [len(members) for members in await brokers.brokers_of(followers[0], "t")] == [2]
    await publish_each(brokers, survivors, MESSAGES[40:])
    for name in survivors:
        assert sorted(map(int, await brokers.values(name, "t"))) == list(range(60))
    # What the zombie still wants to put comes under names that are taken, by which it learns of its successors.
    brokers.stores[owner].release()

    async def zombie_knows() -> bool:
        return len(await brokers.values(owner, "t")) == 60

    await until(zombie_knows)
    assert await read_everywhere(brokers) == [list(range(60))] * 3


async def test_a_follower_is_lost(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    await publish_each(brokers, [owner], MESSAGES[:20])
    brokers.expel(follower)

    async def replaced() -> bool:
        return not any(follower in members for members in await brokers.brokers_of(owner, "t"))

    await until(replaced)
    assert [len(members) for members in await brokers.brokers_of(owner, "t")] == [2]
    for store in brokers.stores.values():
        store.hold()
    await publish_each(brokers, [owner, follower], MESSAGES[20:])
    assert await brokers.stored_messages(owner, "t") == 20
    for store in brokers.stores.values():
        store.release()
    assert await read_everywhere(brokers) == [list(range(60))] * 3


async def test_an_owner_out_of_touch_acknowledges_what_is_stored_only(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    brokers.membership.leaders = set()
    brokers.expel(owner)
    brokers.stores[owner].hold()
    publishing = asyncio.create_task(brokers.publish(owner, "t", ("key", "0")))

    async def held_by_all() -> bool:
        return brokers.up[follower].broker.front_store.pending_bytes > 0

    # Its follower holds it, by which it would be acknowledged, and read, otherwise.
    await until(held_by_all)
    assert await brokers.stored_messages(owner, "t") == 0
    assert await brokers.values(owner, "t") == []
    assert not publishing.done()
    brokers.stores[owner].release()
    assert (await publishing)[0]["offset"] == 0
    assert await brokers.stored_messages(owner, "t") == 1


async def test_a_follower_out_of_touch_is_not_counted_on(brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others may seal without asking it, so what it held would be no second copy."""
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    brokers.membership.leaders = set()
    brokers.expel(follower)
    brokers.stores[owner].hold()
    copies = brokers.up[follower].broker.replica_buffers
    calls: list[tuple[str, int, Sequence[object], int]] = []
    monkeypatch.setattr(copies, "take", lambda *args: calls.append(args) or 0)
    publishing = asyncio.create_task(brokers.publish(owner, "t", ("key", "0")))

    async def asked_twice() -> bool:
        return len(calls) >= 2

    await until(asked_twice)
    assert all(entries == () for _, _, entries, _ in calls)
    assert not publishing.done() and copies.held() == []
    brokers.stores[owner].release()
    assert (await publishing)[0]["offset"] == 0
    assert await brokers.stored_messages(owner, "t") == 1


async def test_a_follower_out_of_touch_stores_what_nobody_else_may_store(brokers: HttpCluster) -> None:
    """Its owner is gone, nobody leads, and whoever leads later has never heard of either of them."""
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    brokers.stores[owner].hold()
    await publish_each(brokers, "abc", MESSAGES)
    assert await brokers.stored_messages(owner, "t") == 0
    brokers.membership.leaders = set()
    brokers.expel(owner)
    brokers.expel(follower)
    await until(lambda: stored(brokers, follower, 60))
    await until(lambda: gives_room_back(brokers, follower))
    await brokers.start("d")
    brokers.membership.leaders = {brokers.up["d"].broker.id}

    async def failed_over() -> bool:
        return owner not in await brokers.owners("d", "t")

    await until(failed_over)
    assert sorted(map(int, await brokers.values("d", "t"))) == list(range(60))
    await brokers.publish("d", "t", ("key", "60"))
    assert sorted(map(int, await brokers.values("d", "t"))) == list(range(61))


async def test_an_owner_goes_on_whose_follower_has_sealed_in_its_stead(brokers: HttpCluster) -> None:
    """Without a leader: all of ZooKeeper may be gone."""
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    brokers.stores[owner].hold()
    await publish_each(brokers, [owner], MESSAGES[:20])
    brokers.membership.leaders = set()
    brokers.expel(follower)
    await until(lambda: stored(brokers, follower, 20))
    brokers.stores[owner].release()

    async def owns_a_successor() -> bool:
        return await brokers.owners(owner, "t") == {owner: 1} and (await segments(brokers, owner)) == 2

    await until(owns_a_successor)
    await publish_each(brokers, "abc", MESSAGES[20:])
    assert await read_everywhere(brokers) == [list(range(60))] * 3


@pytest.mark.parametrize("held", [True, False], ids=["held", "stored"])
async def test_while_the_store_is_away_the_newest_messages_come_from_their_owners(
    brokers: HttpCluster, held: bool
) -> None:
    await brokers.create("a", "t", segments=3, **REPLICATED)
    for name in "abc":
        await brokers.get(name, "/v1/topics/t")
        if held:
            brokers.stores[name].hold()
    await publish_each(brokers, "abc", MESSAGES)
    for store in brokers.stores.values():
        store.can_be_read = False
    assert await read_everywhere(brokers) == [list(range(60))] * 3
    page = await brokers.get("b", "/v1/topics/t/messages", limit=50)
    rest = await brokers.get("c", "/v1/topics/t/messages", marker=page["marker"])
    assert len(page["messages"]) == 50 and len(rest["messages"]) == 10
    # Where an owner does not answer either, it is the store that is missing.
    [[owner, *_], *_] = await brokers.brokers_of("a", "t")
    others = [name for name in "abc" if name != owner]
    brokers.membership.leaders = set()
    brokers.expel(owner)
    answer = await brokers.up[others[0]].client.get("/v1/topics/t/messages")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:braidmq:store-unavailable")
    for store in brokers.stores.values():
        store.can_be_read = True


async def test_who_was_counted_as_gone_acknowledges_nothing_of_what_was_sealed_meanwhile(brokers: HttpCluster) -> None:
    """Owner and follower were cut off together, and are back before they have heard of the segment's successor."""
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    [leader] = set("abc") - {owner, follower}
    await brokers.publish(owner, "t", ("key", "0"))
    await until(lambda: stored(brokers, owner, 1))
    cut_off = [brokers.cut_off(name) for name in (owner, follower)]

    async def failed_over() -> bool:
        return await brokers.owners(leader, "t") == {leader: 1}

    await until(failed_over)
    brokers.stores[owner].hold()
    for member in cut_off:
        brokers.join_again(member)
    messages = brokers.up[owner].client.post(
        "/v1/topics/t/messages", params={"key": "key", "producer": "p", "sequence": 1}, content=b"1"
    )
    publishing = asyncio.create_task(messages)

    async def answered_or_informed() -> bool:
        return publishing.done() or await brokers.owners(owner, "t") == {leader: 1}

    await until(answered_or_informed)
    brokers.stores[owner].release()
    [position] = (await publishing).raise_for_status().json()["positions"]
    assert position["segment"] > 0, "the first one was sealed without it"
    assert await read_everywhere(brokers) == [[0, 1]] * 3


async def test_a_follower_that_leaves_last_stores_what_only_it_holds(brokers: HttpCluster) -> None:
    """Its owner has died, and there is nobody to take anything over."""
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    [third] = set("abc") - {owner, follower}
    brokers.stores[owner].hold()
    await publish_each(brokers, [owner], MESSAGES[:20])
    brokers.membership.leaders = set()
    for name in (owner, third):
        brokers.expel(name)
    assert await brokers.stored_messages(third, "t") == 0
    await brokers.stop(follower)
    assert await brokers.stored_messages(third, "t") == 20


async def test_a_follower_that_drains_stays_until_others_follow(brokers: HttpCluster) -> None:
    """It is the only other one that holds what its owner has not stored."""
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    brokers.stores[owner].hold()
    await brokers.publish(owner, "t", ("key", "0"))
    leaving = brokers.up[follower].broker
    assert (leaving.drainer.segments_owned, await leaving.drainer.hand_over()) == (0, 1)
    brokers.stores[owner].release()

    async def nothing_left() -> bool:
        return await leaving.drainer.hand_over() == 0

    await until(nothing_left)
    assert not any(follower in members for members in await brokers.brokers_of(owner, "t"))


async def test_replicated_needs_replicas(brokers: HttpCluster) -> None:
    await brokers.create("a", "t")
    answer = await brokers.up["b"].client.post("/v1/topics/t/messages", params={"acks": "replicated"}, content=b"0")
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:braidmq:invalid-request")
    assert "at least 2 replicas" in answer.json()["detail"]
    assert await brokers.values("a", "t") == []
    answer = await brokers.up["a"].client.put("/v1/topics/u", json={"replicas": 4})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:braidmq:invalid-config")


async def test_nobody_is_told_that_the_segment_of_a_silent_owner_ends(
    brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.http.endpoints.messages.SILENT_SECONDS", 0.1)
    await brokers.create("a", "t", **REPLICATED)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    [other] = set("abc") - {owner, follower}
    await brokers.publish(owner, "t", ("key", "0"))
    await until(lambda: stored(brokers, owner, 1))
    brokers.stores[owner].hold()
    await brokers.publish(owner, "t", ("key", "1"))
    brokers.membership.leaders = set()
    brokers.expel(owner)
    for path in ("messages", "segments/0/messages"):
        # What is stored is given; that there is nothing behind it nobody can say.
        page = await brokers.get(other, f"/v1/topics/t/{path}")
        assert [message["value"] for message in page["messages"]] == ["0"]
        behind = {"marker": page["marker"]} if "marker" in page else {"offset": page["next_offset"]}
        answer = await brokers.up[other].client.get(f"/v1/topics/t/{path}", params=behind)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:braidmq:owner-silent")
        assert (answer.json()["retryable"], answer.headers["retry-after"]) == (True, "1")
    waiting = asyncio.create_task(brokers.get(other, "/v1/topics/t/segments/0/messages", offset=1, wait=20))
    brokers.membership.leaders = None
    assert [message["value"] for message in (await waiting)["messages"]] == ["1"]
    assert await brokers.values(other, "t") == ["0", "1"]


async def test_reading_from_a_time_on_counts_what_is_not_stored_yet(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", **REPLICATED)
    [[owner, _]] = await brokers.brokers_of("a", "t")
    brokers.stores[owner].hold()
    await brokers.publish(owner, "t", ("key", "0"))
    await brokers.publish(owner, "t", ("key", "1"))
    times = [message["timestamp"] for message in (await brokers.get("a", "/v1/topics/t/messages"))["messages"]]
    assert times[0] < times[1]
    for name in "abc":
        page = await brokers.get(name, "/v1/topics/t/messages", **{"from": times[1]})
        assert [message["value"] for message in page["messages"]] == ["1"]


async def segments(brokers: HttpCluster, name: str) -> int:
    """How many segments the topic has, sealed ones included."""
    return len((await brokers.get(name, "/v1/topics/t"))["segments"])


async def gives_room_back(brokers: HttpCluster, name: str) -> bool:
    return brokers.up[name].broker.front_store.pending_bytes == 0


async def stored(brokers: HttpCluster, name: str, count: int) -> bool:
    return await brokers.stored_messages(name, "t") == count
