"""While a segment is split: who waits for what, and who does not wait at all."""

import asyncio
import secrets
from collections.abc import Sequence
from itertools import islice

import pytest

from filer import keys
from filer.segment.writer.writer_state import WriterState
from filer.slots import slot_of
from filer.topic.catalogue import Catalogue
from tests.support.cluster.http_cluster import HttpCluster, until

RECORD = keys.topic("t")
CUT = 10_000
"""Within the first of two segments."""
WAITING = 20


def keys_within(start: int, stop: int, count: int = 3) -> list[str]:
    candidates = (f"key-{n}" for n in range(100_000))
    found = (key for key in candidates if start <= slot_of(key.encode()) < stop)
    return [*islice(found, count)]


SPLIT_KEYS = [*keys_within(0, CUT), *keys_within(CUT, 32_768)]
OTHER_KEYS = keys_within(32_768, 65_536)


class Split:
    """A split of segment 0 of a topic of two that waits for the store: for its last file, or for topic.json."""

    def __init__(self, cluster: HttpCluster, asked: str) -> None:
        self._cluster, self._asked = cluster, asked
        self._done: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Until it is recorded; nothing is written to the segment any more."""
        self.hold("segment=0/")
        self._done = asyncio.create_task(self._split())
        await until(self._is_recorded)

    async def wait_for_record(self) -> None:
        """Let the segment be sealed, and topic.json not be changed."""
        self.hold(RECORD)
        self.release("segment=0/")
        await until(self._is_sealed)

    def hold(self, part_of_key: str) -> None:
        for store in self._cluster.stores.values():
            store.hold(part_of_key)

    def release(self, part_of_key: str | None = None) -> None:
        for store in self._cluster.stores.values():
            store.release(part_of_key)

    async def end(self) -> None:
        self.release()
        assert self._done is not None
        await self._done

    @property
    def is_done(self) -> bool:
        return self._done is not None and self._done.done()

    async def _split(self) -> None:
        client = self._cluster.up[self._asked].client
        answer = await client.post("/v1/topics/t/segments/0/split", json={"at": [CUT]})
        answer.raise_for_status()

    async def _is_recorded(self) -> bool:
        record = await Catalogue(self._cluster.store, self._cluster.clock).read("t")
        return record is not None and record.state.transition is not None

    async def _is_sealed(self) -> bool:
        owner = await owner_of(self._cluster, 0)
        return self._cluster.up[owner].broker.topics["t"].writers[0].index.sealed


async def owner_of(cluster: HttpCluster, index: int) -> str:
    """The owner of the first or second segment, in key order."""
    return (await cluster.brokers_of("a", "t"))[index][0]


async def publish_everywhere(cluster: HttpCluster, published: Sequence[str]) -> None:
    """Each key through each broker, plainly and with an id."""
    ways = [(name, key, with_id) for name in cluster.up for key in published for with_id in (False, True)]
    await asyncio.gather(*(publish(cluster, name, key, with_id=with_id) for name, key, with_id in ways))


async def publish(cluster: HttpCluster, name: str, key: str, *, with_id: bool = False) -> int:
    """The segment that took it."""
    params = {"key": key} | ({"producer": secrets.token_hex(8), "sequence": "1"} if with_id else {})
    answer = await cluster.up[name].client.post("/v1/topics/t/messages", params=params, content=b"x")
    return int(answer.raise_for_status().json()["positions"][0]["segment"])


@pytest.mark.parametrize("asked", ["a", "b", "c"])
@pytest.mark.parametrize("waits_for", ["its last file", "topic.json"])
async def test_other_ranges_go_on_while_one_is_split(brokers: HttpCluster, waits_for: str, asked: str) -> None:
    await brokers.create("a", "t", segments=2)
    await publish_everywhere(brokers, [*SPLIT_KEYS, *OTHER_KEYS])
    split = Split(brokers, asked)
    await split.begin()
    if waits_for == "topic.json":
        await split.wait_for_record()
    held_back = asyncio.create_task(publish_everywhere(brokers, SPLIT_KEYS))
    await publish_everywhere(brokers, OTHER_KEYS)
    assert not split.is_done and not held_back.done()
    await split.end()
    await held_back
    assert len(await brokers.brokers_of("a", "t")) == 3


async def test_publishes_that_are_held_back_look_for_news_together(brokers: HttpCluster) -> None:
    """Each of them by itself would take the store's connections from the puts that they wait for."""
    await brokers.create("a", "t", segments=2)
    await publish_everywhere(brokers, SPLIT_KEYS)
    split = Split(brokers, "a")
    await split.begin()
    await split.wait_for_record()
    reads = {name: store.reads for name, store in brokers.stores.items()}
    for each in reads.values():
        each.clear()
    ways = [(name, SPLIT_KEYS[number % len(SPLIT_KEYS)]) for name in brokers.up for number in range(WAITING)]
    held_back = asyncio.gather(*(publish(brokers, name, key) for name, key in ways))

    async def have_looked() -> bool:
        return all(each[RECORD] >= 2 for each in reads.values())

    await until(have_looked)
    assert max(each[RECORD] for each in reads.values()) < WAITING / 2
    assert not held_back.done()
    await split.end()
    await held_back


async def test_the_end_of_a_split_is_known_without_reading_it(brokers: HttpCluster) -> None:
    """The former owner cannot read the store when it comes, and sends its publishers on to the successors.

    Those go to the two brokers that own nothing.
    """
    await brokers.create("a", "t", segments=1)
    former = await owner_of(brokers, 0)
    [asked, *_] = sorted(set("abc") - {former})
    split = Split(brokers, asked)
    await split.begin()
    await split.wait_for_record()
    brokers.stores[former].can_be_read = False
    held_back = asyncio.gather(*(publish(brokers, former, key) for key in SPLIT_KEYS))
    await split.end()
    assert set(await held_back) == {1, 2}
    brokers.stores[former].can_be_read = True


async def test_an_owner_whose_store_is_slow_seals_its_segment_itself(brokers: HttpCluster) -> None:
    """It says that it is at it, each time before it would be taken for silent, and nobody seals in its stead."""
    await brokers.create("a", "t", segments=1)
    owner = await owner_of(brokers, 0)
    [asked, *_] = sorted(set("abc") - {owner})
    writer = brokers.up[owner].broker.topics["t"].writers[0]
    brokers.stores[owner].hold("segment=0/")
    waiting = asyncio.create_task(publish(brokers, asked, SPLIT_KEYS[0]))

    async def is_accepted() -> bool:
        return writer.pending_bytes > 0

    async def is_asked_again() -> bool:
        return brokers.peers[asked].calls["seal"] >= 3

    await until(is_accepted)
    client = brokers.up[asked].client
    splitting = asyncio.create_task(client.post("/v1/topics/t/segments/0/split", json={"at": [CUT]}))
    await until(is_asked_again)
    assert writer.state is WriterState.SEALING and not splitting.done()
    brokers.stores[owner].release()
    (await splitting).raise_for_status()
    assert await waiting == 0
    assert writer.state is WriterState.SEALED
