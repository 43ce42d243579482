"""What a client tells about the calls that wait for a broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from braidmq import AsyncClient, ConnectionBroken, NoConnection, Retry
from braidmq.transport.patience import patience
from braidmq.transport.transport import Call
from braidmq.transport.waits import Waits
from filer.clock import ManualClock, settle
from tests.support.broker.fake_broker import FakeBroker, Fault, refused
from tests.support.instant_clock import InstantClock


@pytest.fixture
def manual() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def waiting_client(broker: FakeBroker, manual: ManualClock) -> AsyncIterator[AsyncClient]:
    async with AsyncClient("http://b:1", http_transport=broker.transport, clock=manual, direct=False) as client:
        broker.add_topic("t")
        yield client


@pytest.mark.parametrize("call", ["topic", "publish"])
async def test_a_call_that_is_tried_again_waits_from_its_first_try_on(
    call: str, waiting_client: AsyncClient, broker: FakeBroker, manual: ManualClock
) -> None:
    await waiting_client.topic("t")
    assert waiting_client.waiting is None
    broker.faults.extend([Fault(refused)] * 5)
    calling = asyncio.ensure_future(waiting_client.topic("t") if call == "topic" else waiting_client.publish("t", "v"))
    await settle()
    await manual.advance(0.3)
    waiting = waiting_client.waiting
    assert waiting is not None
    assert (waiting.address, round(waiting.seconds, 3)) == ("http://b:1", 0.3)
    assert isinstance(waiting.failure, NoConnection)
    await manual.advance(10)
    await calling
    assert waiting_client.waiting is None


async def test_an_answer_that_may_be_held_back_is_not_waited_for(manual: ManualClock) -> None:
    waits = Waits(manual)
    with waits.of_call(held_back_seconds=25) as wait:
        wait.tries("http://b:1")
        await manual.advance(25)
        assert waits.longest() is None
        await manual.advance(1)
        assert (found := waits.longest()) is not None
        assert (found.seconds, found.failure) == (1.0, None)
    assert waits.longest() is None


async def test_after_a_failure_it_is_waited_for_at_once(manual: ManualClock) -> None:
    waits = Waits(manual)
    with waits.of_call(held_back_seconds=25) as wait:
        await manual.advance(2)
        wait.failed(ConnectionBroken("gone"))
        await manual.advance(3)
        assert (found := waits.longest()) is not None
        assert found.seconds == 3.0


async def test_after_a_failure_an_answer_that_is_held_back_is_not_waited_for(manual: ManualClock) -> None:
    """A subscription that goes on after a broker's restart is idle, and all is well."""
    asked = asyncio.Queue[asyncio.StreamWriter]()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.put_nowait(writer)

    server = await asyncio.start_server(take, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with server, AsyncClient(f"http://127.0.0.1:{port}", clock=manual, direct=False) as client:
        polling = asyncio.create_task(client._transport.request(Call("GET", "/v1/topics", wait_seconds=25)))
        first = await asked.get()
        await manual.advance(3)
        assert client.waiting is None
        first.close()
        await first.wait_closed()
        while client.waiting is None or client.waiting.failure is None:
            await manual.advance(0.001)
        await manual.advance(5)  # longer than it pauses
        second = await asked.get()
        await settle()
        assert client.waiting is None
        await manual.advance(26)
        assert (late := client.waiting) is not None
        assert late.seconds > 26 and isinstance(late.failure, ConnectionBroken)
        second.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await polling
        second.close()
        await second.wait_closed()


async def test_a_broker_that_cannot_be_reached_is_waited_for_all_the_while(manual: ManualClock) -> None:
    waits = Waits(manual)
    with waits.of_call(held_back_seconds=25) as wait:
        for _ in range(3):
            wait.tries("http://b:1")
            await manual.advance(2)
            assert waits.longest() is None or wait.failure is not None
            wait.failed(NoConnection("refused"))
        await manual.advance(1)
        assert (found := waits.longest()) is not None
        assert found.seconds == 5.0


async def test_the_longest_wait_counts_and_what_nobody_awaits_does_not(manual: ManualClock) -> None:
    waits = Waits(manual)
    with waits.of_call(is_awaited=False):
        await manual.advance(1)
        with waits.of_call() as first:
            first.tries("http://first:1")
            await manual.advance(1)
            with waits.of_call() as second:
                second.tries("http://second:1")
                await manual.advance(1)
                assert (found := waits.longest()) is not None
                assert (found.address, found.seconds) == ("http://first:1", 2.0)


async def test_with_patience_a_broker_that_has_never_answered_is_waited_for(
    broker: FakeBroker, clock: InstantClock
) -> None:
    broker.add_topic("t")
    broker.faults.extend([Fault(refused)] * 5)
    async with AsyncClient("http://b:1", http_transport=broker.transport, clock=clock, **patience(60)) as client:
        assert (await client.topic("t")).topic == "t"


@pytest.mark.parametrize("call", ["topic", "publish", "subscribe"])
async def test_patience_has_an_end_for_every_call(call: str, broker: FakeBroker, clock: InstantClock) -> None:
    broker.add_topic("t")
    async with AsyncClient("http://b:1", http_transport=broker.transport, clock=clock, **patience(5)) as client:
        await client.topic("t")
        broker.faults.extend([Fault(refused)] * 1000)
        with pytest.raises(NoConnection):
            if call == "topic":
                await client.topic("t")
            elif call == "publish":
                await client.publish("t", "v")
            else:
                await anext(client.subscribe("t", from_="earliest"))
    assert 2 < sum(clock.naps_seconds) <= 5


def test_no_patience_given_leaves_the_defaults() -> None:
    assert patience(None) == {}
    assert patience(3600)["delivery_timeout_seconds"] == 1800
    assert patience(10)["retry"] == Retry(give_up_after_seconds=10, for_all_calls=True)
