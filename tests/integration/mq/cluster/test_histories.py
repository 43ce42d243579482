"""A topic's history is the same at every broker, whoever owns the segments and whoever has sealed them."""

from typing import Any

from tests.support.cluster.http_cluster import HttpCluster, until

T = "/v1/topics/t"


async def lives(brokers: HttpCluster, name: str) -> list[dict[str, Any]]:
    """What that broker tells of each segment, but for the means of those that live on."""
    segments = (await brokers.get(name, f"{T}/history"))["segments"]
    return [{k: v for k, v in s.items() if s["sealed"] or not k.endswith("_per_second")} for s in segments]


async def stored_bytes(brokers: HttpCluster, segment: int) -> int:
    return sum([info.size_bytes async for info in brokers.store.list(f"topics/t/segments/segment={segment}/")])


async def test_open_segments_are_told_of_by_their_owners(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=3)
    await brokers.publish("a", "t", *[(key, "x" * 100) for key in ("ann", "bob", "eve", "frank", "grace")])
    told = await lives(brokers, "a")
    assert sum(life["messages"] for life in told) == 5
    assert [life["bytes"] for life in told] == [await stored_bytes(brokers, life["segment"]) for life in told]
    assert await lives(brokers, "b") == await lives(brokers, "c") == told


async def test_what_an_owner_had_stored_before_it_was_gone_is_known(brokers: HttpCluster) -> None:
    await brokers.create("a", "t")
    await brokers.publish("a", "t", ("ann", "x" * 100))
    (owner,) = await brokers.owners("a", "t")
    (other, another) = set("abc") - {owner}
    brokers.expel(owner)

    async def has_failed_over() -> bool:
        return (await lives(brokers, other))[0]["state"] == "sealed"

    await until(has_failed_over)
    first, second = await lives(brokers, another)
    assert (first["messages"], first["bytes"]) == (1, await stored_bytes(brokers, 0))
    assert (second["reason"], second["messages"], second["bytes"]) == ("failover", 0, 0)
