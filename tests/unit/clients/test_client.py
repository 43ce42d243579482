import asyncio
import inspect
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from braidmq import (
    AsyncClient,
    BodyTooLarge,
    Client,
    ClientClosed,
    InvalidArgument,
    OutgoingMessage,
    PayloadMismatch,
    Position,
    Producer,
    TopicNotFound,
)
from braidmq.blocking import LoopThread
from braidmq.blocking_producer import _MOST_GATHERINGS
from filer.clock import ManualClock
from tests.support.broker.fake_broker import FakeBroker, Fault, problem, streamed
from tests.support.instant_clock import InstantClock


@pytest.fixture
def sync(broker: FakeBroker, clock: InstantClock) -> Iterator[Client]:
    with Client("http://b", http_transport=broker.transport, clock=clock, upload_threshold_bytes=1000) as client:
        yield client


def test_the_blocking_client_has_every_call_of_the_other_with_its_arguments() -> None:
    for name, function in inspect.getmembers(AsyncClient, inspect.isfunction):
        if name.startswith("_") and name != "__init__":
            continue
        twin = getattr(Client, "close" if name == "aclose" else name)
        assert inspect.signature(twin).parameters == inspect.signature(function).parameters, name


def test_a_day_in_the_life(sync: Client, broker: FakeBroker) -> None:
    assert sync.url == "http://b"
    sync.create_topic("t", segments=2)
    assert sync.publish("t", {"a": 1}, key="k").offset == 0
    assert sync.publish_many("t", [OutgoingMessage("b", "k"), OutgoingMessage("c", "k")]).count == 2
    assert sync.publish_table("t", pa.table({"v": ["d"]}), value="v").count == 1
    assert {message.value for message in sync.browse("t")} == {b'{"a":1}', b"b", b"c", b"d"}
    assert sync.read_table("t").num_rows == sum(each.num_rows for each in sync.browse_tables("t")) == 4
    assert [each.topic for each in sync.topics()] == ["t"]
    assert len(sync.topic("t").segments) == 2
    sync.delete_topic("t")
    with pytest.raises(TopicNotFound):
        sync.topic("t")


def test_what_is_read_and_sent_shows_itself_without_filling_the_screen(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    assert repr(OutgoingMessage("x", key="k")) == (
        "OutgoingMessage(value='x', key='k', headers={}, event_time=None, deliver_at=None, delay=None, expires_at=None)"
    )
    sync.publish_many("t", ["short", "x" * 900])
    browsing = sync.browse("t")
    short, long = browsing
    assert repr(browsing) == "Messages('t')" and repr(sync.browse_tables("t")) == "Tables('t')"
    assert "Message(topic='t', segment=0, offset=0, timestamp=datetime.datetime(" in repr(short)
    assert "key=None, value=b'short', event_time=None, headers={}, ref=None)" in repr(short)
    assert "value=b'xxxx" in repr(long) and len(repr(long)) < 500
    assert len(repr(OutgoingMessage("x" * 1_000_000, headers={"h": "y" * 1_000_000}))) < 1000


def test_iterators_know_their_markers(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.page_rows = 3
    sync.publish_many("t", [str(n) for n in range(10)])
    browsing = sync.browse("t")
    first = [next(browsing) for _ in range(4)]
    assert browsing.marker == first[-1].marker
    rest = list(sync.browse("t", marker=browsing.marker))
    assert [each.offset for each in first + rest] == list(range(10))
    tables = sync.browse_tables("t")
    next(tables)
    assert [each.offset for each in sync.browse("t", marker=tables.marker)] == list(range(3, 10))


def test_subscribing_waits_for_what_comes(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    sync.publish("t", "a")
    subscription = sync.subscribe("t", from_="earliest")
    assert next(subscription).value == b"a"
    sender = threading.Timer(0.01, lambda: sync.publish("t", "b"))
    sender.start()
    assert next(subscription).value == b"b"
    assert next(sync.subscribe_tables("t", from_="earliest")).num_rows == 2
    sender.join()


def test_a_producer_acknowledges(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    with sync.producer("t", linger_seconds=0) as producer:
        receipts = [producer.send(str(n)) for n in range(10)]
        assert receipts[0].result().position == Position(0, 0)
        producer.flush()
        assert all(receipt.done() for receipt in receipts)
    assert [receipt.result().position for receipt in receipts] == [Position(0, n) for n in range(10)]
    with pytest.raises(ClientClosed):
        producer.send("late")


def test_leaving_a_producers_block_raises_what_nobody_asked_for(sync: Client) -> None:
    with pytest.raises(TopicNotFound), sync.producer("missing") as producer:
        producer.send("v")
    with sync.producer("missing") as producer:
        receipt = producer.send("v")
        with pytest.raises(TopicNotFound):
            receipt.result()
    producer.close()


def test_a_producer_keeps_order_over_small_large_and_many(sync: Client, broker: FakeBroker) -> None:
    topic = broker.add_topic("t")
    values = [str(n) * (500 if n % 100 == 0 else 1) for n in range(1, 1001)]
    with sync.producer("t", linger_seconds=60) as producer:  # so that only its end sends what has gathered
        receipts = [producer.send(value) for value in values]
    assert [receipt.result().position for receipt in receipts] == [Position(0, n) for n in range(1000)]
    stored = [broker.uploads[row["_ref"]["uri"][8:]] if row["_ref"] else row["value"] for row in topic.rows[0]]
    assert stored == [value.encode() for value in values]
    assert len(broker.uploads) == 10
    assert len(broker.requests) < 100


def test_threads_may_share_a_producer(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    with sync.producer("t") as producer:

        def send(name: str) -> None:
            for n in range(500):
                producer.send(f"{name}{n}")

        threads = [threading.Thread(target=send, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = [value.decode() for value in broker.values("t") if value]
    assert len(stored) == 1500
    for name in "abc":
        assert [each for each in stored if each[0] == name] == [f"{name}{n}" for n in range(500)]


def test_send_waits_while_nothing_is_answered(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    sent: list[int] = []
    with sync.producer("t", batch_bytes=1000, max_pending_bytes=2000) as producer:

        def send() -> None:
            for n in range(1000):
                producer.send(b"%03d" % n * 30)
                sent.append(n)

        sending = threading.Thread(target=send)
        sending.start()
        # Of those that made it wait, up to two were handed over meanwhile: so many find room.
        while not sent or len(producer._gatherings) <= _MOST_GATHERINGS - 2:
            sending.join(0.01)
        # All of it would be sent by now. Two kilobytes wait, the request in flight included, and eight gatherings.
        sending.join(0.3)
        assert sending.is_alive() and 10 < len(sent) < 120
        sync._loop.call(_open_gate, broker)
        sending.join()
    assert broker.values("t") == [b"%03d" % n * 30 for n in range(1000)]


async def _open_gate(broker: FakeBroker) -> None:
    broker.gate.set()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Whoever starts the tests in the background may have them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_there_is_no_room_loses_nothing(broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    # A message is a batch. On this clock nothing lingers to its end, so the flush hands over the second one.
    with (
        Client("http://b", http_transport=broker.transport, clock=ManualClock()) as client,
        client.producer("t", linger_seconds=1000, batch_bytes=100, max_pending_bytes=100) as producer,
    ):
        receipts = [producer.send(b"%02d" % n * 34) for n in range(2)]
        interrupting = threading.Timer(0.1, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        interrupting.join()
        client._loop.call(_open_gate, broker)
        assert [each.result().position for each in receipts] == [Position(0, n) for n in range(2)]
    assert broker.values("t") == [b"%02d" % n * 34 for n in range(2)]


def test_a_producer_of_a_closed_client_takes_nothing(broker: FakeBroker) -> None:
    broker.add_topic("t")
    client = Client("http://b", http_transport=broker.transport)
    producer = client.producer("t", linger_seconds=1000)
    gathered = producer.send("v")
    client.close()
    for _ in range(3):
        with pytest.raises(ClientClosed):
            producer.send("w")
    with pytest.raises(ClientClosed):
        gathered.result()


def test_a_time_limit_of_the_call_itself_is_raised() -> None:
    async def late() -> None:
        raise TimeoutError("of the call")

    loop = LoopThread()
    with pytest.raises(TimeoutError, match="of the call"):
        loop.call(late)
    loop.close()


def test_what_is_started_is_not_waited_for_and_ends_with_the_loop() -> None:
    loop, began, ended = LoopThread(), threading.Event(), threading.Event()

    async def fails() -> None:
        raise ValueError("nobody is told")

    async def lasts() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    loop.start(fails)
    loop.start(lasts)
    assert began.wait(10) and not ended.is_set()
    loop.close()
    assert ended.is_set()
    with pytest.raises(ClientClosed):
        loop.start(lasts)


def _sent_by_a_child(producer: Producer, message: dict[str, Any]) -> bool:
    """Whether a forked process is refused."""
    if not (child := os.fork()):
        try:
            producer.send(**message)
        except ClientClosed:
            os._exit(7)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"value": b"v", "key": b"k"}, id="plain"),
        pytest.param({"value": "v"}, id="text"),
        pytest.param({"value": b"v", "headers": {"a": "b"}}, id="with headers"),
        pytest.param({"value": b"v" * 100_000}, id="long"),
    ],
)
def test_a_message_is_refused_once_there_is_nobody_to_send_it(
    broker: FakeBroker, clock: InstantClock, message: dict[str, Any]
) -> None:
    broker.add_topic("t")
    client = Client("http://b", http_transport=broker.transport, clock=clock)
    closed, still_open = client.producer("t"), client.producer("t")
    for producer in (closed, still_open):
        producer.send(b"1")
        producer.flush()
        producer.send(b"2")  # what comes next is gathered with it
    assert _sent_by_a_child(still_open, message)
    closed.close()
    with pytest.raises(ClientClosed):
        closed.send(**message)
    still_open.flush()
    client.close()
    with pytest.raises(ClientClosed):
        still_open.send(**message)
    assert sorted(broker.values("t"), key=str) == [b"1", b"1", b"2", b"2"]


def test_receipts_tell_what_is_known(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    with pytest.raises(KeyboardInterrupt), sync.producer("t") as producer:
        given_up = producer.send("v")
        assert repr(given_up) == "<Receipt pending>" and not given_up.done()
        raise KeyboardInterrupt
    with pytest.raises(ClientClosed):
        given_up.result()
    sync._loop.call(_open_gate, broker)
    with sync.producer("t") as producer:
        receipt = producer.send("w")
        assert receipt.result().position == Position(0, 0)
        assert repr(receipt) == f"<Receipt {receipt.result()}>"


def test_a_bad_message_is_refused_by_send(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    with sync.producer("t") as producer:
        with pytest.raises(InvalidArgument):
            producer.send("v", event_time=datetime(2024, 5, 1))
        producer.send("w")
    assert broker.values("t") == [b"w"]


def test_an_interrupted_block_sends_no_more(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    with pytest.raises(KeyboardInterrupt), sync.producer("t") as producer:
        receipt = producer.send("v")
        raise KeyboardInterrupt
    with pytest.raises(ClientClosed):
        receipt.result()
    assert broker.values("t") == []


def test_what_is_published_may_come_from_the_same_client(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("a")
    broker.add_topic("b")
    values = [str(n) for n in range(25_000)]
    assert sync.publish_many("a", values).count == 25_000
    assert sync.publish_many("b", (OutgoingMessage(each.value, each.key) for each in sync.browse("a"))).count == 25_000
    assert broker.values("b") == [value.encode() for value in values]


def test_a_failure_says_what_was_acknowledged_before(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.extend([None, None, Fault(response=problem(413, "body-too-large"))])
    with pytest.raises(BodyTooLarge) as caught:
        sync.publish_many("t", (str(n) for n in range(35_000)))
    assert caught.value.published is not None
    assert caught.value.published.count == 20_000


def test_closing_a_client_ends_calls_of_other_threads(broker: FakeBroker, clock: InstantClock) -> None:
    broker.add_topic("t")
    client = Client("http://b", http_transport=broker.transport, clock=clock)
    ended: list[BaseException] = []

    def subscribe() -> None:
        try:
            next(client.subscribe("t"))
        except ClientClosed as failure:
            ended.append(failure)

    thread = threading.Thread(target=subscribe)
    thread.start()
    deadline = time.monotonic() + 5
    while len(broker.requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    client.close()
    thread.join(5)
    assert len(ended) == 1


def test_a_payload_is_a_binary_file(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    large = bytes(range(256)) * 2000
    sync.publish("t", large)
    sync.publish("t", sync.upload("t", b"a\nb\n"))
    sync.publish("t", "inline")
    first, second, third = sync.browse("t")
    with sync.open(first) as file:
        assert file.read(10) == large[:10]
        assert file.read() == large[10:]
    with sync.open(second) as file:
        assert list(file) == [b"a\n", b"b\n"]
    with sync.open(third) as file:
        assert file.read() == b"inline"
    broker.faults.append(Fault(response=streamed(large[:-1])))
    with pytest.raises(PayloadMismatch), sync.open(first) as file:
        file.read()


def test_a_closed_client_says_so_and_may_be_closed_again(broker: FakeBroker) -> None:
    client = Client(http_transport=broker.transport)
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.cluster()


def test_threads_may_share_a_client(sync: Client, broker: FakeBroker) -> None:
    broker.add_topic("t")
    threads = [threading.Thread(target=lambda: [sync.publish("t", "v") for _ in range(20)]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(broker.values("t")) == 100


async def test_closing_a_client_ends_the_receipts_of_its_producers(broker: FakeBroker, clock: InstantClock) -> None:
    broker.add_topic("t")
    client = AsyncClient("http://b", http_transport=broker.transport, clock=clock)
    producer = client.producer("t", linger_seconds=1000)
    receipt = await producer.send(b"a")
    await client.aclose()
    async with asyncio.timeout(5):
        with pytest.raises(ClientClosed, match="may be stored"):
            await receipt
    with pytest.raises(ClientClosed):
        await producer.send(b"b")


def test_a_client_whose_event_loop_is_over_says_so(broker: FakeBroker, clock: InstantClock) -> None:
    broker.add_topic("t")
    client = AsyncClient("http://b", http_transport=broker.transport, clock=clock, direct=False)

    async def ask() -> None:
        await client.topic("t")

    asyncio.run(ask())
    with pytest.raises(ClientClosed, match=r"make a client in each asyncio\.run"):
        asyncio.run(ask())
    asyncio.run(client.aclose())
