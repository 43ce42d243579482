"""Brokers know floors of their own segments: what came before them goes once all owners have told theirs."""

from functools import partial

from filer.topic.catalogue import Catalogue
from tests.support.cluster.http_cluster import HttpCluster


async def test_the_owners_of_both_halves_let_the_whole_go(brokers: HttpCluster) -> None:
    floors: dict[str, dict[int, int]] = {name: {} for name in brokers.up}
    for name, running in brokers.up.items():
        running.broker.floors["t"] = partial(floors.__getitem__, name)
    await brokers.create("a", "t")
    await brokers.publish("a", "t", *((f"key-{n}", f"{n}") for n in range(20)))
    (await brokers.up["a"].client.post("/v1/topics/t/segments/0/split", json={})).raise_for_status()
    for _ in range(3):  # a file of each half, each time
        await brokers.publish("a", "t", *((f"key-{n}", "new") for n in range(20)))
    opened = (await brokers.up["a"].broker.topics.topic("t")).state.open_segments
    owners = {segment.id: segment.owner.partition(".")[0] for segment in opened}
    assert len(set(owners.values())) == 2

    async def starts() -> dict[int, int]:
        """After a round of everybody."""
        for running in brokers.up.values():
            await running.broker.topics.refresh("t")
            await running.broker.maintenance.round()
        record = await Catalogue(brokers.store, brokers.clock).read("t")
        assert record is not None
        return {segment.id: segment.start_offset for segment in record.state.segments}

    (first, first_owner), (second, second_owner) = owners.items()
    end = next(s["end_offset"] for s in (await brokers.get("a", "/v1/topics/t"))["segments"] if s["segment"] == first)
    floors[first_owner][first] = end
    assert await starts() == {0: 0, first: end * 2 // 3, second: 0}
    floors[first_owner].clear()  # its coordinator has moved on to another segment
    floors[second_owner][second] = 0
    assert await starts() == {0: 20, first: end * 2 // 3, second: 0}
