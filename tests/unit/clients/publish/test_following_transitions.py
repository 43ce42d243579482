"""Producers while segments move, split and merge: each message is stored once, in order per key."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidmq import Acknowledgement, AsyncClient, AsyncProducer, AsyncReceipt, ClientClosed, OutcomeUnknown, Position
from braidmq.publish.encoding.outgoing import Row
from braidmq.publish.encoding.row_columns import RowColumns
from braidmq.publish.receipts import Answer
from filer.clock import settle
from tests.support.cluster.model_cluster import ModelCluster
from tests.support.instant_clock import InstantClock
from tests.support.thoroughness import few_or_many

KEYS = [b"key-%d" % n for n in range(12)]


def client_of(
    cluster: ModelCluster, url: str = "http://b0", *, direct: bool = True, clock: InstantClock | None = None
) -> AsyncClient:
    return AsyncClient(
        url,
        http_transport=cluster.transport,
        clock=clock or InstantClock(),
        delivery_timeout_seconds=1800,
        direct=direct,
    )


@pytest.fixture
def cluster() -> ModelCluster:
    return ModelCluster(brokers=4, segments=1)


@pytest.fixture
async def producer(cluster: ModelCluster, clock: InstantClock) -> AsyncIterator[AsyncProducer]:
    async with client_of(cluster, clock=clock) as client, client.producer("t", linger_seconds=0) as producer:
        yield producer


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def send_round(producer: AsyncProducer, number: int) -> list[AsyncReceipt]:
    """One message for each key."""
    return [await producer.send(b"%d" % number, key=key) for key in KEYS]


def in_order(count: int) -> dict[bytes | None, list[bytes]]:
    return {key: [b"%d" % number for number in range(count)] for key in KEYS}


async def test_an_owner_gets_its_messages_directly_from_the_second_request_on(cluster: ModelCluster) -> None:
    cluster.change(cluster.open_segments, [((0, 30_000), "b2"), ((30_000, 65_536), "b3")])
    async with client_of(cluster) as client, client.producer("t") as producer:
        await send_round(producer, 0)
    assert {broker for broker, _ in cluster.publishes} == {"b2", "b3"}
    assert len(cluster.publishes) == 2


async def test_a_segment_that_moves_is_followed(
    cluster: ModelCluster, producer: AsyncProducer, clock: InstantClock
) -> None:
    await asyncio.gather(*await send_round(producer, 0))
    cluster.move(cluster.open_segments[0], "b1")
    await asyncio.gather(*await send_round(producer, 1))  # forwarded; the answer names the new segment
    await clock.advance(1)
    await asyncio.gather(*await send_round(producer, 2))
    assert cluster.publishes[-1][0] == "b1"
    assert cluster.values_by_key() == in_order(3)


async def test_an_owner_that_dies_with_a_request_is_followed_by_the_same_request_first(
    cluster: ModelCluster, producer: AsyncProducer
) -> None:
    await asyncio.gather(*await send_round(producer, 0))
    cluster.gates["b0"].clear()
    first = await send_round(producer, 1)
    await until(lambda: cluster.held["b0"] == 1)
    later = await send_round(producer, 2)
    cluster.kill("b0")
    cluster.split(cluster.open_segments[0], "b1", "b2")
    cluster.gates["b0"].set()
    await asyncio.gather(*first, *later)
    assert cluster.values_by_key() == in_order(3)


async def test_newer_messages_wait_for_a_request_in_flight_over_a_merge_and_a_split(clock: InstantClock) -> None:
    cluster = ModelCluster(brokers=3, segments=3)
    first, second, third = cluster.open_segments
    stuck, moved, tell = ([key for key in KEYS if cluster.segment_of(key) is each] for each in (first, second, third))
    assert stuck and moved and tell
    async with client_of(cluster, clock=clock) as client, client.producer("t", linger_seconds=0) as producer:

        async def learn(keys: list[bytes], value: bytes) -> None:
            """Let an answer show the change to the producer, which follows it with the next request."""
            for each in (value + b"a", value + b"b"):
                await clock.advance(1)
                await asyncio.gather(*[await producer.send(each, key=key) for key in keys])

        await asyncio.gather(*await send_round(producer, 0))
        cluster.gates["b0"].clear()
        receipts = [await producer.send(b"1", key=key) for key in stuck]
        await until(lambda: cluster.held["b0"] == 1)
        cluster.merge(first, second, "b2")
        await asyncio.gather(*[await producer.send(b"1", key=key) for key in moved])
        await clock.advance(1)
        receipts += [await producer.send(b"2", key=key) for key in moved + stuck]
        await settle()
        cluster.split(cluster.segment_of(stuck[0]), "b1", "b2")
        cluster.move(third, "b1")
        await learn(tell, b"1")
        receipts += await send_round(producer, 3)
        await settle(500)
        early = {row["value"] for row in cluster.log if row["key"] in stuck}
        cluster.gates["b0"].set()
        await asyncio.gather(*receipts)
    assert early == {b"0"}, "overtaken"
    stored = cluster.values_by_key()
    assert all(stored[key] == [b"0", b"1", b"2", b"3"] for key in stuck + moved)
    assert all(stored[key] == [b"0", b"1a", b"1b", b"3"] for key in tell)


@pytest.mark.parametrize("fault", ["request-lost", "answer-lost"])
@pytest.mark.parametrize("direct", [True, False])
async def test_a_lost_request_or_answer_is_repeated_under_its_sequence(
    cluster: ModelCluster, fault: str, direct: bool
) -> None:
    async with client_of(cluster, direct=direct) as client:
        cluster.faults = [fault, fault]
        position = await client.publish("t", "v", key="k")
        assert position == Position(0, 0)
        assert len({request for _, request in cluster.publishes}) == 1
        cluster.faults = [fault]
        assert (await client.publish_many("t", ["w", "x"])).count == 2
        cluster.faults = [fault]
        async with client.producer("t") as producer:
            await (await producer.send("y"))
    assert [row["value"] for row in cluster.log] == [b"v", b"w", b"x", b"y"]


async def test_an_outcome_that_stays_unknown_until_the_delivery_times_out_is_raised_as_unknown(
    cluster: ModelCluster,
) -> None:
    cluster.faults = ["answer-lost"] * 10_000
    client = AsyncClient(
        "http://b0", http_transport=cluster.transport, clock=InstantClock(), delivery_timeout_seconds=20
    )
    async with client:
        with pytest.raises(OutcomeUnknown, match=r"no acknowledgement within 20 seconds and \d+ tries") as caught:
            await client.publish("t", "v")
    assert not caught.value.retryable
    assert len(cluster.log) == 1


async def test_messages_without_a_key_spread_over_segments_in_requests_of_their_own() -> None:
    cluster = ModelCluster(brokers=4, segments=4)
    async with client_of(cluster) as client, client.producer("t", linger_seconds=0) as producer:
        await (await producer.send("first"))
        receipts = []
        for n in range(100):
            receipts.append(await producer.send(b"%d" % n, key=None if n % 2 else KEYS[n % 12]))
            await asyncio.sleep(0)
        await producer.flush()
    assert len(cluster.log) == 101
    assert None not in [(await receipt).position for receipt in receipts]
    without = [row for row in cluster.log if row["key"] is None]
    assert len(without) == 51
    assert len([each for each in cluster.segments if any(row["key"] is None for row in each.rows)]) > 1


async def test_an_unreachable_owner_is_avoided() -> None:
    cluster = ModelCluster(brokers=3, segments=3)
    cluster.reachable = {"b0"}
    clock = InstantClock()
    async with AsyncClient("http://b0", http_transport=cluster.transport, clock=clock) as client:
        for number in range(3):
            for key in KEYS:
                await client.publish("t", b"%d" % number, key=key)
    assert cluster.values_by_key() == in_order(3)
    assert {broker for broker, _ in cluster.publishes} == {"b0"}
    assert clock.naps_seconds == []


async def test_a_table_goes_to_its_owners_in_shares() -> None:
    cluster = ModelCluster(brokers=3, segments=3)
    count = 20_000
    table = pa.table({"k": [None if n % 7 == 0 else f"k{n % 100}" for n in range(count)], "v": ["x" * 20] * count})
    table = table.set_column(1, "v", pa.array([f"{n:020d}" for n in range(count)]))
    cluster.faults = [None, "answer-lost"]
    async with client_of(cluster) as client:
        published = await client.publish_table("t", table, key="k", value="v")
    assert published.count == count == sum(each.count for each in published.positions)
    expected: dict[bytes | None, list[bytes]] = {}
    for n in range(count):
        key = None if n % 7 == 0 else f"k{n % 100}".encode()
        expected.setdefault(key, []).append(b"%020d" % n)
    assert cluster.values_by_key() == expected
    assert {broker for broker, _ in cluster.publishes} == {"b0", "b1", "b2"}


@settings(max_examples=few_or_many(20, 60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_message_is_stored_once_and_in_order_whatever_happens(seed: int) -> None:
    asyncio.run(_random_run(seed))


async def _random_run(seed: int) -> None:
    chance = random.Random(seed)
    # Windows of few sequences: a producer with many requests in flight for the same keys loses messages here.
    cluster = ModelCluster(brokers=4, segments=chance.choice([1, 2, 4]), window_size=chance.choice([24, 1000]))
    cluster.chaos = random.Random(seed + 1)
    sent: dict[bytes | None, list[bytes]] = {}
    receipts: list[AsyncReceipt] = []
    gathered: list[Gathered] = []
    async with client_of(cluster, "http://b0,http://b1,http://b2,http://b3", direct=chance.random() < 0.8) as client:
        async with client.producer("t", linger_seconds=0, batch_bytes=300) as producer:
            weather = asyncio.create_task(_weather(cluster, chance))
            for n in range(60):
                together = chance.choice([0, 0, 1, 7, 40])
                rows = [(chance.choice([None, *KEYS]), b"%d.%d" % (n, row)) for row in range(together or 1)]
                for key, value in rows:
                    sent.setdefault(key, []).append(value)
                if together:
                    gathered.append(Gathered(rows))
                    await producer.send_rows(gathered[-1].columns, gathered[-1], producer.due_seconds(), {})
                else:
                    receipts.append(await producer.send(rows[0][1], key=rows[0][0]))
                for _ in range(chance.choice([0, 0, 5, 50])):
                    await asyncio.sleep(0)
            weather.cancel()
            await asyncio.gather(weather, return_exceptions=True)
            for broker in list(cluster.ids):
                if broker not in cluster.alive:
                    cluster.start(broker)
            await producer.flush()
        await cluster.settle()
    stored = cluster.values_by_key()
    assert sorted(stored.pop(None, [])) == sorted(sent.pop(None, []))
    assert stored == sent
    for receipt in receipts:
        position = (await receipt).position
        assert position is None or position.offset < len(cluster.segments[position.segment].rows)
    for each in gathered:
        each.check(cluster)


class Gathered:
    """Messages that come together, and what each was answered."""

    def __init__(self, rows: list[tuple[bytes | None, bytes]]) -> None:
        self.rows = rows
        self.columns = RowColumns.of(Row(key, value, (), None, None) for key, value in rows)
        self._answers: dict[int, Acknowledgement] = {}

    def acknowledge(self, numbers: Sequence[int], answer: Answer, first_row: int) -> None:
        for row, number in enumerate(numbers, first_row):
            assert number not in self._answers, "one answer for each message"
            self._answers[number] = answer.acknowledgement(row)

    def fail(self, numbers: Sequence[int], failure: Exception) -> None:
        raise AssertionError("a message failed") from failure

    def abandon(self, numbers: Sequence[int]) -> None:
        raise AssertionError("a message was given up")

    def are_asked(self, numbers: Sequence[int]) -> bool:
        return False

    def failure(self, numbers: Sequence[int]) -> None:
        return None

    def check(self, cluster: ModelCluster) -> None:
        """Each message is where its answer says, if it says so."""
        assert sorted(self._answers) == list(range(len(self.rows)))
        for number, (key, value) in enumerate(self.rows):
            if position := self._answers[number].position:
                row = cluster.segments[position.segment].rows[position.offset]
                assert (row["key"], row["value"]) == (key, value)


async def _weather(cluster: ModelCluster, chance: random.Random) -> None:
    """Transitions and deaths; at least one broker stays alive."""
    while True:
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        segments = cluster.open_segments
        index = chance.randrange(len(segments))
        owner = chance.choice(sorted(cluster.alive))
        match chance.choice(["split", "merge", "move", "kill", "start"]):
            case "split" if len(segments) < 8:
                cluster.split(segments[index], owner, chance.choice(sorted(cluster.alive)))
            case "merge" if index + 1 < len(segments):
                cluster.merge(segments[index], segments[index + 1], owner)
            case "move":
                cluster.move(segments[index], owner)
            case "kill" if len(cluster.alive) > 1:
                _fail_over(cluster, owner, chance)
            case "start":
                for broker in set(cluster.ids) - cluster.alive:
                    cluster.start(broker)


def _fail_over(cluster: ModelCluster, broker: str, chance: random.Random) -> None:
    cluster.kill(broker)
    for segment in cluster.open_segments:
        if segment.owner == broker:
            cluster.move(segment, chance.choice(sorted(cluster.alive)))


async def test_a_client_closed_under_its_producer_fails_what_waits_and_hangs_nowhere(cluster: ModelCluster) -> None:
    client = client_of(cluster)
    producer = client.producer("t", linger_seconds=0)
    waiting = [await producer.send("v", key=key) for key in KEYS]
    await asyncio.sleep(0)
    await client.aclose()
    async with asyncio.timeout(5):
        with pytest.raises(ClientClosed):
            await producer.close()
    assert all(receipt.done() for receipt in waiting)


async def test_an_interrupted_producer_leaves_no_task_behind() -> None:
    cluster = ModelCluster(brokers=3, segments=3)
    before = asyncio.all_tasks()
    async with client_of(cluster) as client:
        producer = client.producer("t", linger_seconds=0)
        await asyncio.gather(*await send_round(producer, 0))
        for gate in cluster.gates.values():
            gate.clear()
        waiting = await send_round(producer, 1)
        await until(lambda: sum(cluster.held.values()) > 1)
        waiting += await send_round(producer, 2)
        await producer.abandon()
        assert all(isinstance(receipt.exception(), ClientClosed) for receipt in waiting)
    assert asyncio.all_tasks() <= before


async def test_a_flush_does_not_wait_for_what_is_sent_after_it() -> None:
    cluster = ModelCluster(brokers=2, segments=2)
    slow, fast = (next(key for key in KEYS if cluster.segment_of(key) is each) for each in cluster.open_segments)
    async with client_of(cluster) as client, client.producer("t", linger_seconds=0) as producer:
        await asyncio.gather(*await send_round(producer, 0))
        first = await producer.send("a", key=fast)
        cluster.gates["b0"].clear()
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        later = await producer.send("b", key=slow)
        await asyncio.wait_for(flushing, 5)
        assert first.done()
        assert not later.done()
        cluster.gates["b0"].set()
