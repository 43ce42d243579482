import asyncio
from collections.abc import Callable

import httpx
import pytest

from braidmq import (
    AsyncClient,
    ClientClosed,
    ConnectionBroken,
    FrontStoreFull,
    InvalidArgument,
    NoConnection,
    NotABroker,
    OutcomeUnknown,
    Retry,
    TopicNotFound,
    Unavailable,
)
from tests.support.broker.fake_broker import FakeBroker, Fault, broken, problem, refused
from tests.support.instant_clock import InstantClock


async def test_a_wrong_port_fails_at_once_naming_the_address_and_the_cause(
    client: AsyncClient, broker: FakeBroker, clock: InstantClock
) -> None:
    broker.faults.extend([Fault(refused)] * 5)
    with pytest.raises(NoConnection) as caught:
        await client.topic("t")
    assert str(caught.value) == (
        "no connection to http://127.0.0.1:8080: Connection refused; is a broker listening there?"
    )
    assert caught.value.retryable
    assert clock.naps_seconds == []


async def test_a_broker_that_restarts_is_waited_for(
    client: AsyncClient, broker: FakeBroker, clock: InstantClock
) -> None:
    broker.add_topic("t")
    await client.topic("t")
    broker.faults.extend([Fault(refused)] * 3)
    await client.publish("t", "v")
    assert broker.values("t") == [b"v"]
    assert len(clock.naps_seconds) == 3


async def test_waiting_has_an_end(broker: FakeBroker, clock: InstantClock) -> None:
    broker.add_topic("t")
    retry = Retry(give_up_after_seconds=5)
    async with AsyncClient("http://b:1", http_transport=broker.transport, clock=clock, retry=retry) as client:
        await client.topic("t")
        broker.faults.extend([Fault(refused)] * 1000)
        with pytest.raises(NoConnection):
            await client.topic("t")
    assert 2 < sum(clock.naps_seconds) <= 5


async def test_reads_are_repeated_after_a_broken_connection(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.extend([Fault(broken, after=True), Fault(broken)])
    assert (await client.topic("t")).topic == "t"
    assert len(broker.requests) == 3


async def test_a_read_that_stays_broken_says_so(client: AsyncClient, broker: FakeBroker) -> None:
    broker.faults.extend([Fault(broken)] * 1000)
    with pytest.raises(ConnectionBroken, match=r"the answer of http://127.0.0.1:8080 was lost") as caught:
        await client.topic("t")
    assert caught.value.retryable


@pytest.mark.parametrize(
    "error",
    [broken, lambda request: httpx.ReadTimeout("", request=request), lambda r: httpx.WriteError("", request=r)],
)
async def test_a_publish_that_brokers_cannot_tell_from_another_is_never_repeated_once_it_may_have_arrived(
    cautious: AsyncClient, broker: FakeBroker, error: Callable[[httpx.Request], Exception]
) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(error, after=True))
    with pytest.raises(OutcomeUnknown, match="may or may not be stored") as caught:
        await cautious.publish("t", "v")
    assert not caught.value.retryable
    assert len(broker.requests) == 1
    assert broker.values("t") == [b"v"]


@pytest.mark.parametrize("slug", ["store-unavailable", "owner-silent"])
async def test_what_publishes_nothing_is_repeated_where_an_older_broker_calls_it_final(
    client: AsyncClient, broker: FakeBroker, slug: str
) -> None:
    broker.add_topic("t")
    broker.faults.extend([Fault(response=problem(503, slug, retryable=False))] * 3)
    assert (await client.topic("t")).topic == "t"
    assert len(broker.requests) == 4


async def test_a_full_broker_is_given_the_time_it_asks_for(
    client: AsyncClient, broker: FakeBroker, clock: InstantClock
) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(response=problem(429, "front-store-full", retryable=True, retry_after=7)))
    await client.publish("t", "v")
    assert broker.values("t") == [b"v"]
    assert clock.naps_seconds == [7.0]


async def test_a_broker_that_stays_full_is_an_error_in_the_end(cautious: AsyncClient, broker: FakeBroker) -> None:
    fault = Fault(response=problem(429, "front-store-full", retryable=True, retry_after=11))
    broker.faults.extend([fault] * 9)
    with pytest.raises(FrontStoreFull) as caught:
        await cautious.publish("t", "v")
    assert caught.value.retryable
    assert len(broker.requests) == 3


@pytest.mark.parametrize(("slug", "requests"), [("draining", 2), ("segment-moved", 2), ("store-unavailable", 1)])
async def test_an_unavailable_broker_is_asked_again_where_it_says_so(
    cautious: AsyncClient, broker: FakeBroker, slug: str, requests: int
) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(response=problem(503, slug, retryable=requests > 1)))
    if requests > 1:
        await cautious.publish("t", "v")
    else:
        with pytest.raises(OutcomeUnknown):
            await cautious.publish("t", "v")
    assert len(broker.requests) == requests


async def test_a_gateway_in_between_is_repeated_for_reads_only(cautious: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(response=httpx.Response(502, text="<html>")))
    await cautious.topic("t")
    broker.faults.append(Fault(response=httpx.Response(504, text="<html>")))
    with pytest.raises(OutcomeUnknown, match="HTTP 504"):
        await cautious.publish("t", "v")
    broker.faults.extend([Fault(response=httpx.Response(503, text="<html>"))] * 1000)
    with pytest.raises(Unavailable):
        await cautious.topic("t")


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(404, text="<h1>not here</h1>"),
        httpx.Response(404, json={"detail": "Not Found"}),
        httpx.Response(200, text="<h1>welcome</h1>"),
        httpx.Response(302, headers={"location": "/login"}),
        httpx.Response(200, json={"hello": "world"}),
    ],
)
async def test_another_server_is_recognised(client: AsyncClient, broker: FakeBroker, response: httpx.Response) -> None:
    broker.faults.append(Fault(response=response))
    with pytest.raises(NotABroker):
        await client.topic("t")


async def test_a_missing_topic_is_no_retry(client: AsyncClient, broker: FakeBroker) -> None:
    with pytest.raises(TopicNotFound):
        await client.publish("nope", "v")
    assert len(broker.requests) == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "", "ftp://host", "http://", "http://host:port"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        AsyncClient(url)


class WaitingTransport(httpx.AsyncBaseTransport):
    """Requests wait for ever; `at_close` is how many were waiting when it was closed."""

    def __init__(self) -> None:
        self.under_way = 0
        self.at_close: int | None = None
        self.asked = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.under_way += 1
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.under_way -= 1
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        self.at_close = self.under_way


async def test_connections_are_closed_when_no_request_is_in_flight() -> None:
    """One that got its answer while the others were closed would leave its connection open."""
    transport = WaitingTransport()
    client = AsyncClient("http://b:1", http_transport=transport)
    asking = asyncio.create_task(client.topic("t"))
    await transport.asked.wait()
    await client.aclose()
    assert transport.at_close == 0
    with pytest.raises(ClientClosed):
        await asking


async def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    """As when a reader runs out of time, and is stopped while it leaves `async with`."""
    transport = WaitingTransport()
    client = AsyncClient("http://b:1", http_transport=transport)
    asking = asyncio.create_task(client.topic("t"))
    await transport.asked.wait()
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert transport.at_close == 0
    with pytest.raises(ClientClosed):
        await asking


async def test_a_closed_client_says_so(client: AsyncClient) -> None:
    await client.aclose()
    with pytest.raises(ClientClosed):
        await client.cluster()


async def test_closing_ends_requests_in_flight(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    publishing = asyncio.create_task(client.publish("t", "v"))
    subscribing = asyncio.create_task(anext(client.subscribe("t", from_="earliest")))
    while len(broker.requests) < 3:
        await asyncio.sleep(0)
    await client.aclose()
    with pytest.raises(OutcomeUnknown):
        await publishing
    with pytest.raises(ClientClosed):
        await subscribing


async def test_a_call_cancelled_before_closing_stays_cancelled(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    publishing = asyncio.create_task(client.publish("t", "v"))
    while not broker.requests:
        await asyncio.sleep(0)
    publishing.cancel()
    await client.aclose()
    with pytest.raises(asyncio.CancelledError):
        await publishing


async def test_a_cancelled_call_raises_cancelled(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.gate.clear()
    publishing = asyncio.create_task(client.publish("t", "v"))
    while not broker.requests:
        await asyncio.sleep(0)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert broker.values("t") == []


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"": "x"}, "not a valid header name"),
        ({"a b": "x"}, "not a valid header name"),
        ({"authorization": "Bearer x\n"}, "value of header authorization"),
        ({"authorization": " x"}, "value of header authorization"),
        ({"authorization": "grün"}, "value of header authorization"),
        ({"n": 1}, "value of header n"),
    ],
)
def test_headers_that_http_does_not_take_are_refused(headers: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        AsyncClient("http://b", headers=headers)


async def test_headers_go_with_every_request_to_the_broker(broker: FakeBroker) -> None:
    broker.add_topic("t")
    async with AsyncClient(
        "http://b:1/prefix/", headers={"authorization": "Bearer x"}, http_transport=broker.transport
    ) as client:
        with pytest.raises(TopicNotFound):
            await client.topic("nope")
        assert client.url == "http://b:1/prefix"
    assert broker.requests[0].headers["authorization"] == "Bearer x"
    assert broker.requests[0].url.path == "/prefix/v1/topics/nope"
