import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, cast

import pytest

from braidmq import (
    AsyncClient,
    AsyncProducer,
    AsyncReceipt,
    ClientClosed,
    InvalidArgument,
    OutcomeUnknown,
    Position,
    PositionRange,
    Refused,
    TopicNotFound,
)
from filer.clock import ManualClock, settle
from tests.support.broker.fake_broker import FakeBroker, Fault, broken, problem


@pytest.fixture
def hand() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def client(broker: FakeBroker, hand: ManualClock) -> AsyncIterator[AsyncClient]:
    async with AsyncClient("http://b", http_transport=broker.transport, clock=hand) as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def test_messages_of_a_moment_share_a_request(client: AsyncClient, broker: FakeBroker, hand: ManualClock) -> None:
    broker.add_topic("t")
    async with client.producer("t", linger_seconds=0.005) as producer:
        receipts = [await producer.send(str(n)) for n in range(100)]
        await settle()
        assert broker.requests == []
        await hand.advance(0.0049)
        assert broker.requests == []
        await hand.advance(0.0002)
        acknowledged = await asyncio.gather(*receipts)
    assert len(broker.requests) == 1
    assert [each.position for each in acknowledged] == [Position(0, n) for n in range(100)]
    assert acknowledged[0].positions == (PositionRange(0, 0, 100),)
    assert acknowledged[0].topic == "t"


async def test_a_full_batch_does_not_linger(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    async with client.producer("t", linger_seconds=1000, batch_bytes=1000) as producer:
        receipts = [await producer.send(bytes(100)) for _ in range(10)]
        await receipts[0]
        assert not receipts[-1].done()
    assert len(broker.requests) == 2
    assert await receipts[-1]


async def test_without_linger_a_message_goes_at_once(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    async with client.producer("t", linger_seconds=0) as producer:
        assert (await (await producer.send("v"))).position == Position(0, 0)


async def test_one_request_is_in_flight_and_the_next_batch_gathers(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    async with client.producer("t", linger_seconds=0) as producer:
        receipts = [await producer.send("0")]
        await until(lambda: len(broker.requests) == 1)
        receipts += [await producer.send(str(n)) for n in range(1, 50)]
        await settle()
        assert len(broker.requests) == 1
        broker.gate.set()
        await asyncio.gather(*receipts)
    assert len(broker.requests) == 2
    assert broker.values("t") == [b"%d" % n for n in range(50)]


async def test_flush_sends_lingering_messages(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    producer = client.producer("t", linger_seconds=1000)
    receipt = await producer.send("v")
    await producer.flush()
    assert receipt.done()
    await producer.flush()
    await producer.close()


async def test_memory_is_bounded_by_making_send_wait(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    producer = client.producer("t", linger_seconds=1000, batch_bytes=1000, max_pending_bytes=1000)
    sent: list[AsyncReceipt] = []

    async def send_all() -> None:
        for n in range(30):
            sent.append(await producer.send(b"%02d" % n * 50))

    sending = asyncio.create_task(send_all())
    await until(lambda: len(broker.requests) == 1)
    await settle()
    assert len(sent) == 7
    broker.gate.set()
    await sending
    await producer.close()
    assert broker.values("t") == [b"%02d" % n * 50 for n in range(30)]


async def test_a_message_larger_than_the_bound_goes_alone(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    async with client.producer("t", batch_bytes=100, max_pending_bytes=100) as producer:
        for _ in range(3):
            await producer.send(bytes(1000))
    assert len(broker.requests) == 3


async def test_positions_follow_the_keys_over_several_segments(client: AsyncClient, broker: FakeBroker) -> None:
    topic = broker.add_topic("t", segments=4)
    async with client.producer("t") as producer:
        receipts = [await producer.send(str(n), key=str(n % 9)) for n in range(90)]
        await producer.flush()
    for n, receipt in enumerate(receipts):
        position = (await receipt).position
        assert position is not None
        assert topic.rows[position.segment][position.offset]["value"] == b"%d" % n


async def test_ranges_that_cannot_be_fetched_leave_messages_acknowledged(broker: FakeBroker, hand: ManualClock) -> None:
    broker.add_topic("t", segments=4)
    broker.faults.extend([None, Fault(broken)])
    client = AsyncClient("http://b", http_transport=broker.transport, clock=hand, direct=False)
    async with client, client.producer("t") as producer:
        receipts = [await producer.send("v", key=str(n)) for n in range(20)]
    acknowledged = [await receipt for receipt in receipts]
    assert {each.position for each in acknowledged} == {None}
    assert sum(each.count for each in acknowledged[0].positions) == 20


async def test_a_failure_reaches_every_message_of_its_batch(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(broken))
    async with client.producer("t", linger_seconds=1000, idempotent=False) as producer:
        failing = [await producer.send("v") for _ in range(3)]
        outcomes = await asyncio.gather(*failing, producer.flush(), return_exceptions=True)
        assert [type(each) for each in outcomes] == [OutcomeUnknown] * 3 + [type(None)]
        fine = await producer.send("w")
        await producer.flush()
        assert (await fine).position == Position(0, 0)


async def test_a_failure_nobody_asked_for_is_raised_by_flush_once(client: AsyncClient, broker: FakeBroker) -> None:
    producer = client.producer("missing")
    await producer.send("v")
    with pytest.raises(TopicNotFound):
        await producer.flush()
    await producer.flush()
    await producer.close()


async def test_leaving_the_block_raises_what_nobody_asked_for(client: AsyncClient) -> None:
    with pytest.raises(TopicNotFound):
        async with client.producer("missing") as producer:
            await producer.send("v")


async def test_failures_that_were_asked_for_are_not_raised_again(client: AsyncClient, broker: FakeBroker) -> None:
    async with client.producer("missing", linger_seconds=0) as producer:
        awaited, gathered = [await producer.send("v") for _ in range(2)]
        with pytest.raises(TopicNotFound):
            await awaited
        assert isinstance((await asyncio.gather(gathered, return_exceptions=True))[0], TopicNotFound)


async def test_an_error_of_the_block_itself_wins(client: AsyncClient) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.producer("missing") as producer:
            await producer.send("v")
            raise ZeroDivisionError


async def test_a_cancelled_block_sends_no_more(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    kept: list[AsyncReceipt] = []

    async def block() -> None:
        async with client.producer("t", linger_seconds=1000) as producer:
            kept.append(await producer.send("v"))
            await asyncio.sleep(1000)

    task = asyncio.create_task(block())
    await until(lambda: bool(kept))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ClientClosed, match="may be stored"):
        await kept[0]
    assert broker.requests == []


async def test_a_receipt_given_up_does_not_disturb_the_others(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    producer = client.producer("t", linger_seconds=0)
    first, second = [await producer.send(each) for each in "ab"]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(second, 0.001)
    flushing = asyncio.create_task(producer.flush())
    await settle()
    assert not flushing.done()
    broker.gate.set()
    await flushing
    assert (await first).position == Position(0, 0)
    await producer.close()


async def test_a_closed_producer_takes_no_more(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    producer = client.producer("t")
    await producer.send("v")
    await producer.close()
    with pytest.raises(ClientClosed):
        await producer.send("w")
    assert broker.values("t") == [b"v"]


async def test_a_bad_message_is_refused_and_the_rest_goes(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    async with client.producer("t") as producer:
        await producer.send("a")
        with pytest.raises(InvalidArgument):
            await producer.send("v", event_time=datetime(2024, 5, 1))
        await producer.send("b")
    assert broker.values("t") == [b"a", b"b"]


async def test_a_full_broker_delays_and_loses_nothing(
    client: AsyncClient, broker: FakeBroker, hand: ManualClock
) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(response=problem(429, "front-store-full", retryable=True, retry_after=3)))
    producer = client.producer("t", linger_seconds=0)
    receipt = await producer.send("v")
    await until(lambda: len(broker.requests) == 1)
    await settle()
    await hand.advance(3)
    assert (await receipt).position == Position(0, 0)
    await producer.close()


@pytest.mark.parametrize(
    "settings",
    [{"linger_seconds": -1}, {"batch_bytes": 0}, {"batch_bytes": 100, "max_pending_bytes": 99}],
)
async def test_invalid_settings_are_refused(client: AsyncClient, settings: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        client.producer("t", **settings)


async def test_large_values_are_uploaded_and_keep_their_order(broker: FakeBroker) -> None:
    topic = broker.add_topic("t")
    client = AsyncClient("http://b", http_transport=broker.transport, upload_threshold_bytes=10)
    async with client, client.producer("t") as producer:
        tasks = [asyncio.create_task(producer.send(each)) for each in ("a", "x" * 11, "b")]
        await asyncio.gather(*tasks)
    assert [(row["value"], row["_ref"] is not None) for row in topic.rows[0]] == [
        (b"a", False), (None, True), (b"b", False),
    ]  # fmt: skip


@pytest.mark.parametrize("linger_seconds", [-1, float("nan"), float("inf")])
async def test_a_time_to_linger_is_a_time(client: AsyncClient, linger_seconds: float) -> None:
    with pytest.raises(InvalidArgument, match=f"linger_seconds of 0 or more.*{linger_seconds}"):
        client.producer("t", linger_seconds=linger_seconds)


async def wait_for(receipt: AsyncReceipt) -> None:
    await asyncio.wait_for(receipt, 0.001)


async def wait_in_a_block(receipt: AsyncReceipt) -> None:
    async with asyncio.timeout(0.001):
        await receipt


async def gather(receipt: AsyncReceipt) -> None:
    async with asyncio.timeout(0.001):
        await asyncio.gather(receipt)


async def wait(receipt: AsyncReceipt) -> None:
    done, _ = await asyncio.wait(cast("Any", [receipt]), timeout=0.001)  # typeshed knows futures only
    assert not done
    raise TimeoutError


WAITS = [wait_for, wait_in_a_block, gather, wait]


@pytest.mark.parametrize("waiting", WAITS)
async def test_a_wait_that_ends_leaves_the_receipt_as_it_is(
    client: AsyncClient, broker: FakeBroker, waiting: Callable[[AsyncReceipt], Awaitable[None]]
) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    async with client.producer("t", linger_seconds=0) as producer:
        receipt = await producer.send("a")
        with pytest.raises(TimeoutError):
            await waiting(receipt)
        broker.gate.set()
        assert (await receipt).position == Position(0, 0)
        assert await receipt == receipt.result()


@pytest.mark.parametrize("waiting", WAITS)
async def test_a_failure_after_a_wait_that_ended_is_raised_by_flush(
    client: AsyncClient, broker: FakeBroker, waiting: Callable[[AsyncReceipt], Awaitable[None]]
) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    broker.faults.append(Fault(response=problem(422, "invalid-request"), after=True))
    producer = client.producer("t", linger_seconds=0)
    receipt = await producer.send("a")
    with pytest.raises(TimeoutError):
        await waiting(receipt)
    broker.gate.set()
    with pytest.raises(Refused):
        await producer.flush()
    with pytest.raises(Refused):
        await receipt
    await producer.close()


async def awaits(receipt: AsyncReceipt) -> None:
    await receipt


async def asks_when_it_is_done(receipt: AsyncReceipt) -> None:
    done, _ = await asyncio.wait(cast("Any", [receipt]))
    done.pop().result()


@pytest.mark.parametrize("waits", [awaits, asks_when_it_is_done])
@pytest.mark.parametrize("flushes", [AsyncProducer.flush, AsyncProducer.close])
async def test_a_failure_is_raised_by_a_flush_however_late_the_wait_is_cancelled(
    client: AsyncClient,
    broker: FakeBroker,
    waits: Callable[[AsyncReceipt], Coroutine[Any, Any, None]],
    flushes: Callable[[AsyncProducer], Coroutine[Any, Any, None]],
) -> None:
    """Also in the very turn of the event loop in which the failure comes."""
    broker.add_topic("t")
    for turns in range(1000):
        broker.gate.clear()
        broker.faults.append(Fault(response=problem(422, "invalid-request"), after=True))
        producer = client.producer("t", linger_seconds=0)
        waiting = asyncio.create_task(waits(await producer.send("a")))
        flushing = asyncio.create_task(flushes(producer))
        await settle()
        broker.gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        by_the_wait, by_the_flush = await asyncio.gather(waiting, flushing, return_exceptions=True)
        if isinstance(by_the_wait, Refused):
            break
        assert isinstance(by_the_flush, Refused), f"cancelled after {turns} turns"
    assert turns > 3


async def test_a_wait_that_is_still_cancelled_leaves_the_failure_to_the_next_flush(client: AsyncClient) -> None:
    """However long it takes: as that of a callback that is removed."""
    producer = client.producer("missing", linger_seconds=0)
    receipt = await producer.send("a")
    receipt.add_done_callback(print)
    await producer.flush()
    receipt.remove_done_callback(print)
    with pytest.raises(TopicNotFound):
        await producer.close()


async def test_callbacks_get_the_receipt(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    called: list[AsyncReceipt] = []
    async with client.producer("t") as producer:
        receipt = await producer.send("a")
        receipt.add_done_callback(called.append)
        receipt.add_done_callback(print)
        assert receipt.remove_done_callback(print) == 1
    await asyncio.sleep(0)
    assert called == [receipt]
