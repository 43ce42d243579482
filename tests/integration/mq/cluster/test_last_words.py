"""Whoever goes with the segments of a topic learns of each, and its last word is the last message before the seal."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filer.clock import SystemClock
from filer.segment.next_file import Single
from filer.stores.memory_store import MemoryStore
from filer.topic.incarnation import Incarnation
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.topic import segment_observer
from tests.support.cluster.http_cluster import HttpCluster, until


class Coordinator:
    """Publishes a message as its last word, once `may_speak` is set. `told` has what it was told of each segment."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.told: dict[int, list[str]] = {}
        self.speaks, self.may_speak = asyncio.Event(), asyncio.Event()
        self.may_speak.set()

    def on_writer_opened(self, segment: int) -> None:
        self._note("opened", segment)

    def on_writer_closed(self, segment: int) -> None:
        self._note("closed", segment)

    async def before_seal(self, segment: int) -> None:
        self._note("last word", segment)
        self.speaks.set()
        await self.may_speak.wait()
        writer = self._broker.topics["t"].writers[segment]
        value = f"last of {segment}".encode()
        await writer.append(Single(b"k", value, None, None), len(value))

    def _note(self, what: str, segment: int) -> None:
        self.told.setdefault(segment, []).append(what)


def coordinator_of(broker: Broker) -> Coordinator:
    made = broker.observers["t"] = Coordinator(broker)
    return made


@pytest.fixture
async def brokers() -> AsyncIterator[HttpCluster]:
    """Broker `b` has the segments of `t`; `a` leads."""
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b")
        yield cluster
    finally:
        await cluster.stop_all()


async def owned_by_b(brokers: HttpCluster) -> tuple[int, Coordinator, Coordinator]:
    """A topic `t` of one segment with a message, whose owner `b` is not asked yet; the coordinators of `a` and `b`."""
    coordinators = [coordinator_of(brokers.up[name].broker) for name in ("a", "b")]
    await brokers.create("a", "t", segments=2)
    runtime = await brokers.up["b"].broker.topics.topic("t")
    ((segment, _),) = runtime.writers.items()
    return segment, coordinators[0], coordinators[1]


async def drained(brokers: HttpCluster) -> None:
    async def owns_nothing() -> bool:
        answer = await brokers.up["a"].client.post("/v1/cluster/brokers/b/drain")
        return bool(answer.raise_for_status().json()["segments"] == 0)

    await until(owns_nothing)


async def test_a_drain_hands_over_what_the_last_word_left(brokers: HttpCluster) -> None:
    segment, at_a, at_b = await owned_by_b(brokers)
    await drained(brokers)
    assert at_b.told == {segment: ["opened", "last word", "closed"]}
    state = brokers.up["a"].broker.topics["t"].state
    sealed = state.segment(segment)
    assert sealed is not None and (sealed.state, sealed.end_offset) == ("sealed", 1)
    assert await brokers.values("a", "t") == [f"last of {segment}"]
    (successor,) = [each.id for each in state.open_segments if segment in each.predecessors]
    assert at_a.told[successor] == ["opened"]


async def test_an_owner_says_that_it_still_seals_while_a_last_word_takes_long(brokers: HttpCluster) -> None:
    """Or whoever asks would take it for silent, and seal without it."""
    segment, _, at_b = await owned_by_b(brokers)
    at_b.may_speak.clear()
    asking, asked = brokers.up["a"].broker, brokers.up["b"].broker
    version = asking.topics["t"].state.version
    for _ in range(2):
        assert await asking.peers.seal(brokers.up["b"].url, "t", segment, version, timeout_seconds=0.1) is None
    assert asked.topics["t"].writers[segment].is_open
    at_b.may_speak.set()
    end = await asking.peers.seal(brokers.up["b"].url, "t", segment, version, timeout_seconds=5.0)
    assert end is not None and end.end_offset == 1
    assert at_b.told == {segment: ["opened", "last word", "closed"]}


async def test_a_last_word_that_does_not_end_keeps_nothing_from_being_handed_over(
    brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_observer, "LAST_WORD_SECONDS", 0.05)
    segment, _, at_b = await owned_by_b(brokers)
    at_b.may_speak.clear()
    await drained(brokers)
    assert at_b.told == {segment: ["opened", "last word", "closed"]}
    sealed = brokers.up["a"].broker.topics["t"].state.segment(segment)
    assert sealed is not None and sealed.end_offset == 0


async def test_a_broker_killed_in_the_middle_of_a_last_word_is_failed_over(brokers: HttpCluster) -> None:
    """It is stopped at that very line: what it would have written is missing, and nothing else."""
    segment, _, at_b = await owned_by_b(brokers)
    at_b.may_speak.clear()
    draining = asyncio.create_task(brokers.up["a"].client.post("/v1/cluster/brokers/b/drain"))
    await at_b.speaks.wait()
    brokers.cut_off("b")
    (await draining).raise_for_status()

    async def failed_over() -> bool:
        sealed = brokers.up["a"].broker.topics["t"].state.segment(segment)
        return sealed is not None and sealed.state == "sealed"

    await until(failed_over)
    await brokers.publish("a", "t", *((str(n), str(n)) for n in range(10)))
    assert sorted(await brokers.values("a", "t")) == [str(n) for n in range(10)]


async def test_a_clean_stop_without_others_seals_nothing_and_stores_the_last_word() -> None:
    store, clock, settings = MemoryStore(), SystemClock(), BrokerSettings(maintenance_interval=3600)
    for life in range(2):
        incarnation = await Incarnation.find(store, clock, settings.broker)
        broker = Broker(store, clock, InProcessCoordinator(), settings, incarnation=incarnation)
        coordinator = coordinator_of(broker)
        await broker.start("http://here")
        try:
            await broker.administration.put("t", {})
            runtime = await broker.topics.topic("t")
            position = await runtime.publisher.publish_single(Single(b"k", b"v", None, None), 1)
            assert (position.segment, position.offset) == (0, 2 * life)
            await broker.drain()
            assert coordinator.told == {0: ["opened", "last word"]}
        finally:
            await broker.close()
        assert coordinator.told == {0: ["opened", "last word", "closed"]}
