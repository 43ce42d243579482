"""Brokers whose addresses refuse connections while their sessions go on: who is failed over, and what it may cost.

None of them has died. So each failover here is a wrong one, and may cost segments but no message.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.support.cluster.http_cluster import HttpCluster, until
from tests.support.stalled_clock import StalledClock

SESSION_SECONDS = 60.0
PATIENCE_SECONDS = 0.3
REPLICATED = {"acks": "replicated", "replicas": 2}
MESSAGES = [(f"key-{n}", f"{n}") for n in range(60)]
MANY_LOOKS = 20


@pytest.fixture
async def cluster() -> AsyncIterator[HttpCluster]:
    """Four brokers, of which `a` leads, and whose sessions do not end. They report once an hour."""
    clock = StalledClock()
    made = HttpCluster(clock)
    made.membership.session_seconds = SESSION_SECONDS
    async with clock.running():
        try:
            await made.start("a", "b", "c", "d", refused_timeout=PATIENCE_SECONDS, report_interval=3600)
            yield made
        finally:
            for name in list(made.up):
                made.answer(name)
            await made.stop_all()


async def owner_of_some(cluster: HttpCluster, topic: str) -> str:
    """An owner that does not lead."""
    return next(owner for owner, *_ in await cluster.brokers_of("a", topic) if owner != "a")


async def apart_from_the_leader(cluster: HttpCluster) -> tuple[str, list[list[str]]]:
    """A replicated topic with segments that do not lie with the leader, and who has its segments.

    The name of a topic and the ids of brokers decide between brokers that carry the same.
    """
    for number in itertools.count():
        topic = f"t{number}"
        await cluster.create("a", topic, segments=12, **REPLICATED)
        placed = await cluster.brokers_of("a", topic)
        if any("a" not in members for members in placed):
            return topic, placed
    raise AssertionError


async def publish_each(
    cluster: HttpCluster, through: Sequence[str], messages: Sequence[tuple[str, str]], topic: str = "t"
) -> None:
    """One request a message, all at once; each must be acknowledged."""
    await asyncio.gather(
        *(cluster.publish(through[n % len(through)], topic, message) for n, message in enumerate(messages))
    )


async def until_others_own(cluster: HttpCluster, victim: str, topic: str) -> None:
    async def failed_over() -> bool:
        return not any(victim in members for members in await cluster.brokers_of("a", topic))

    await until(failed_over)


async def until_looked(cluster: HttpCluster, times: int = MANY_LOOKS) -> None:
    """Until the leader has looked so many times more; a new suspicion is raised whenever the last one is over."""
    target = cluster.peers["a"].calls["presence"] + times

    async def looked() -> bool:
        return cluster.peers["a"].calls["presence"] >= target

    await until(looked)


async def read_everywhere(cluster: HttpCluster, topic: str = "t") -> list[list[int]]:
    return [sorted(map(int, await cluster.values(name, topic))) for name in cluster.up]


@pytest.mark.parametrize("config", [{}, REPLICATED], ids=["stored", "replicated"])
async def test_a_broker_that_lives_loses_its_segments_and_no_message(
    cluster: HttpCluster, config: dict[str, object]
) -> None:
    await cluster.create("a", "t", segments=8, **config)
    victim = await owner_of_some(cluster, "t")
    others = [name for name in cluster.up if name != victim]
    await publish_each(cluster, list(cluster.up), MESSAGES[:20])
    cluster.peers[victim].nameless = True
    cluster.stores[victim].hold()
    # Straight to the victim, which forwards what is not its own. Where its followers hold them they are acknowledged.
    waiting = [asyncio.create_task(cluster.publish(victim, "t", message)) for message in MESSAGES[20:40]]
    if config:
        await asyncio.gather(*waiting)
    cluster.refuse(victim, *others)
    # These are refused at the victim, wait, and go to the successors.
    await publish_each(cluster, others, MESSAGES[40:])
    await until_others_own(cluster, victim, "t")
    # What the victim wants to put now comes under names that are taken. It sends on what it has not acknowledged.
    cluster.stores[victim].release()
    await asyncio.gather(*waiting)

    async def victim_knows() -> bool:
        return len(await cluster.values(victim, "t")) == len(MESSAGES)

    await until(victim_knows)
    assert await read_everywhere(cluster) == [list(range(60))] * 4


async def test_a_publish_waits_for_the_failover(cluster: HttpCluster) -> None:
    """It is told to the leader at once, so it takes little more than the patience."""
    await cluster.create("a", "t", segments=4)
    victim = await owner_of_some(cluster, "t")
    cluster.peers[victim].nameless = True
    through = next(name for name in cluster.up if name not in ("a", victim))
    cluster.refuse(victim, *(name for name in cluster.up if name != victim))
    async with asyncio.timeout(20 * PATIENCE_SECONDS):
        await publish_each(cluster, [through], MESSAGES)


@pytest.mark.parametrize("seen_by", ["the leader alone", "all but the leader"])
async def test_one_view_changes_nothing(cluster: HttpCluster, seen_by: str) -> None:
    await cluster.create("a", "t", segments=4)
    victim = await owner_of_some(cluster, "t")
    cluster.peers[victim].nameless = True
    others = [name for name in cluster.up if name not in ("a", victim)]
    cluster.refuse(victim, *(["a"] if seen_by == "the leader alone" else others))
    before = await cluster.brokers_of("a", "t")

    async def suspect() -> None:
        while True:
            cluster.up["a"].broker.refusal_watch.told(cluster.up[victim].broker.id)
            await asyncio.sleep(PATIENCE_SECONDS / 10)

    suspecting = asyncio.create_task(suspect())
    await until_looked(cluster)
    suspecting.cancel()
    assert await cluster.brokers_of("a", "t") == before


async def test_one_whose_calls_arrive_keeps_its_segments(cluster: HttpCluster) -> None:
    """It copies to its followers and forwards, so somebody hears it. As without early failovers, its session counts."""
    await cluster.create("a", "t", segments=4, acks="replicated", replicas=4)
    victim = await owner_of_some(cluster, "t")
    before = await cluster.brokers_of("a", "t")
    cluster.refuse(victim, *(name for name in cluster.up if name != victim))
    until_seconds = cluster.clock.monotonic_seconds() + 8 * PATIENCE_SECONDS
    number = 0
    while cluster.clock.monotonic_seconds() < until_seconds:
        cluster.up["a"].broker.refusal_watch.told(cluster.up[victim].broker.id)
        await cluster.publish(victim, "t", (f"key-{number}", f"{number}"))
        number += 1
    assert await cluster.brokers_of("a", "t") == before


async def test_an_owner_and_its_only_follower_keep_what_only_they_hold(cluster: HttpCluster) -> None:
    topic, placed = await apart_from_the_leader(cluster)
    await cluster.create("a", "u", segments=4)
    victim, follower = next(members for members in placed if "a" not in members)
    others = [name for name in cluster.up if name not in (victim, follower)]
    both = {victim, follower}
    kept = [members for members in placed if set(members) == both]
    for name in (victim, follower):
        cluster.peers[name].nameless = True
        cluster.stores[name].hold()
    # What the two hold alone is acknowledged, and goes on being.
    await publish_each(cluster, [victim], MESSAGES[:20], topic)
    for name in (victim, follower):
        cluster.refuse(name, *others)
    for name in (victim, follower):
        cluster.up["a"].broker.refusal_watch.told(cluster.up[name].broker.id)

    async def failed_over() -> bool:
        stored = await cluster.owners("a", "u")
        return not both & stored.keys() and all(
            not both & set(members) or set(members) == both for members in await cluster.brokers_of("a", topic)
        )

    await until(failed_over)
    assert [members for members in await cluster.brokers_of("a", topic) if set(members) == both] == kept
    for name in (victim, follower):
        cluster.stores[name].release()
    await publish_each(cluster, [victim], MESSAGES[20:], topic)
    for name in (victim, follower):
        cluster.answer(name)

    async def all_read() -> bool:
        return await read_everywhere(cluster, topic) == [list(range(60))] * 4

    await until(all_read)


async def test_what_is_asked_between_brokers(cluster: HttpCluster) -> None:
    a, b, c = (cluster.up[name] for name in "abc")
    assert await a.broker.peers.presence(b.url) == b.broker.id
    ask = a.broker.peers.sight
    assert await ask(b.url, c.broker.id, heard_within_seconds=0) == "answered"
    assert await ask(b.url, "nobody.01", heard_within_seconds=0) == "unclear"
    cluster.refuse("c", "b")
    assert await ask(b.url, c.broker.id, heard_within_seconds=0) == "refused"
    await c.broker.peers.presence(b.url)
    assert await ask(b.url, c.broker.id, heard_within_seconds=60) == "answered"
    cluster.peers["b"].refusing.clear()
    cluster.peers["b"].parted.add(c.url)
    assert await ask(b.url, c.broker.id, heard_within_seconds=0) == "unclear"
    # The leader cares; another broker does not.
    assert await b.broker.peers.tell_refused(a.url, c.broker.id) is True
    assert await a.broker.peers.tell_refused(b.url, c.broker.id) is False
    assert (await a.client.post("/internal/v1/sight?heard=0", content=b"c")).status_code == 403
