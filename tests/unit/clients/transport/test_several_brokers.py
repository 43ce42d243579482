"""Clients that know several brokers: if one fails, the next one is asked."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from braidmq import AsyncClient, InvalidArgument, NoConnection, NotABroker, OutcomeUnknown
from braidmq.transport.addresses import Addresses, parse_addresses
from braidmq.transport.patience import patience
from filer.clock import settle
from tests.support.broker.fake_broker import FakeBroker, problem, refused
from tests.support.instant_clock import InstantClock

ADDRESSES = ["http://a", "http://b:8080", "http://c"]


class Hosts:
    """One fake broker under several names. Those in `down` refuse, or answer as `down` says."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.down: dict[str, httpx.Response | None] = {}
        self.asked: list[str] = []
        self.looks = 0
        self.brokers = [{"broker": "a", "url": "http://a", "state": "running"}]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if request.url.path == "/v1/cluster" and host not in self.down:
            self.looks += 1
            answer = {"cluster": "c", "version": "1", "leader": None, "brokers": self.brokers}
            return httpx.Response(200, json=answer)
        self.asked.append(host)
        if host in self.down:
            answer = self.down[host]
            if answer is None:
                raise refused(request)
            return answer
        return await self.broker.handle(request)


@pytest.fixture
def hosts() -> Hosts:
    hosts = Hosts()
    hosts.broker.add_topic("t")
    return hosts


@pytest.fixture
async def several(hosts: Hosts, clock: InstantClock) -> AsyncIterator[AsyncClient]:
    transport = httpx.MockTransport(hosts.handle)
    async with AsyncClient(ADDRESSES, http_transport=transport, clock=clock) as client:
        yield client


async def test_the_next_broker_is_asked_at_once_and_kept_to(
    several: AsyncClient, hosts: Hosts, clock: InstantClock
) -> None:
    hosts.down = {"a": None}
    await several.topic("t")
    await several.topic("t")
    assert hosts.asked == ["a", "b", "b"]
    assert clock.naps_seconds == []


async def test_when_nobody_answers_the_error_names_them_all(several: AsyncClient, hosts: Hosts) -> None:
    hosts.down = {"a": None, "b": None, "c": None}
    with pytest.raises(NoConnection) as caught:
        await several.publish("t", "v", key="k")
    said = str(caught.value)
    assert all(f"no connection to {address}: Connection refused" in said for address in ADDRESSES)
    assert caught.value.retryable


@pytest.mark.parametrize(
    "answer",
    [problem(503, "draining", retryable=True, retry_after=1), httpx.Response(502, text="<html>")],
)
async def test_a_broker_that_leaves_is_left(
    several: AsyncClient, hosts: Hosts, clock: InstantClock, answer: httpx.Response
) -> None:
    hosts.down = {"a": answer}
    assert (await several.create_topic("u")).topic == "u"
    await several.publish("t", "v")
    assert [message.value async for message in several.browse("t")] == [b"v"]
    assert clock.naps_seconds == []


async def test_brokers_that_the_cluster_tells_of_serve_when_the_first_is_gone(
    hosts: Hosts, clock: InstantClock
) -> None:
    hosts.brokers += [
        {"broker": "d", "url": "http://d", "state": "draining"},
        {"broker": "e", "url": "http://e/", "state": "running"},
        {"broker": "f", "url": None, "state": "running"},
        {"broker": "g", "url": "http://127.0.0.1:9", "state": "running"},
    ]
    transport = httpx.MockTransport(hosts.handle)
    async with AsyncClient("http://a", http_transport=transport, clock=clock) as client:
        await client.topic("t")
        while len(client.urls) == 1:
            await asyncio.sleep(0)
        assert client.urls == ("http://a", "http://e", "http://d")
        assert client.url == "http://a"
        hosts.down = {"a": None}
        await client.publish("t", "v", key="k")
        await client.topic("t")
    assert hosts.asked[-1] == "e"
    assert hosts.broker.values("t") == [b"v"]


async def test_a_client_works_on_when_one_by_one_every_broker_it_knew_has_been_replaced(
    hosts: Hosts, clock: InstantClock
) -> None:
    names = [f"b{n}" for n in range(9)]
    transport = httpx.MockTransport(hosts.handle)
    hosts.brokers = [_running(name) for name in names[:3]]
    async with AsyncClient("http://b0", http_transport=transport, clock=clock) as client:
        await client.topic("t")
        await _until_known(client, names[:3])
        for gone, new in zip(names, names[3:], strict=False):
            hosts.down[gone] = None
            here = [name for name in names[: names.index(new) + 1] if name not in hosts.down]
            hosts.brokers = [_running(name) for name in here]
            await clock.advance(1.1)
            await client.topic("t")  # the broker in use is the one that is gone
            await _until_known(client, ["b0", *here])
    assert clock.naps_seconds == []


async def test_brokers_that_others_have_replaced_are_learned_while_the_one_in_use_stays(
    hosts: Hosts, clock: InstantClock
) -> None:
    hosts.brokers = [_running(name) for name in ("a", "b", "c")]
    async with AsyncClient("http://a", http_transport=httpx.MockTransport(hosts.handle), clock=clock) as client:
        await client.topic("t")
        await _until_known(client, ["a", "b", "c"])
        hosts.brokers = [_running(name) for name in ("a", "d", "e")]
        await clock.advance(5.1)
        await client.topic("t")
        await _until_known(client, ["a", "d", "e"])
        hosts.down = dict.fromkeys("abc")
        await client.topic("t")
    assert hosts.asked[-1] == "d"


async def test_after_learning_others_since_a_failure_the_next_refresh_is_not_early(
    several: AsyncClient, hosts: Hosts, clock: InstantClock
) -> None:
    hosts.down = {"a": None}
    await several.topic("t")
    for seconds, fetches in ((0, 1), (4.9, 1), (0.2, 2)):
        await clock.advance(seconds)
        await several.topic("t")
        await settle()
        assert hosts.looks == fetches


def _running(name: str) -> dict[str, str]:
    return {"broker": name, "url": f"http://{name}", "state": "running"}


async def _until_known(client: AsyncClient, names: list[str]) -> None:
    for _ in range(1000):
        if client.urls == tuple(f"http://{name}" for name in names):
            return
        await asyncio.sleep(0)
    raise AssertionError(f"not {names} are known but {client.urls}")


async def test_behind_a_load_balancer_only_its_address_is_used(hosts: Hosts, clock: InstantClock) -> None:
    hosts.brokers.append({"broker": "e", "url": "http://e", "state": "running"})
    transport = httpx.MockTransport(hosts.handle)
    async with AsyncClient("http://lb", http_transport=transport, clock=clock, direct=False) as client:
        await client.publish("t", "v", key="k")
        async with client.producer("t") as producer:
            await producer.send("w", key="k")
        for _ in range(100):
            await asyncio.sleep(0)
        assert client.urls == ("http://lb",)
    assert hosts.asked == ["lb", "lb"]
    assert hosts.broker.looks == []


async def test_a_subscription_goes_on_at_another_broker_without_gap_or_double(
    several: AsyncClient, hosts: Hosts, clock: InstantClock
) -> None:
    hosts.broker.page_rows = 3
    await several.publish_many("t", [str(n) for n in range(10)])
    subscription = several.subscribe("t", from_="earliest")
    read = []
    for n in range(10):
        if n == 4:
            hosts.down = {"a": None}
        if n == 7:
            hosts.down = {"b": problem(503, "draining", retryable=True)}
        read.append((await anext(subscription)).value)
    assert read == [b"%d" % n for n in range(10)]
    assert {"a", "b", "c"} <= set(hosts.asked)


async def test_an_owners_address_that_leads_to_something_else_is_avoided(hosts: Hosts, clock: InstantClock) -> None:
    async def handle(request: httpx.Request) -> httpx.Response:
        if request.url.host == "printer":
            return httpx.Response(404, text="<h1>paper jam</h1>")
        answer = await hosts.handle(request)
        if request.url.path.endswith("/route"):
            return httpx.Response(200, content=answer.content.replace(b"http://a", b"http://printer"))
        return answer

    async with AsyncClient("http://a", http_transport=httpx.MockTransport(handle), clock=clock) as client:
        await client.publish("t", "v", key="k")
        with pytest.raises(NotABroker):
            await AsyncClient("http://printer", http_transport=httpx.MockTransport(handle)).topic("t")
    assert hosts.broker.values("t") == [b"v"]
    assert clock.naps_seconds == []


async def test_a_learned_address_that_leads_to_something_else_is_skipped(hosts: Hosts, clock: InstantClock) -> None:
    hosts.brokers += [{"broker": each, "url": f"http://{each}", "state": "running"} for each in ("d", "e")]
    transport = httpx.MockTransport(hosts.handle)
    async with AsyncClient("http://a", http_transport=transport, clock=clock) as client:
        await client.publish("t", "v", key="k")
        while len(client.urls) < 3:
            await asyncio.sleep(0)
        hosts.down = {"a": None, "d": httpx.Response(404, text="<h1>paper jam</h1>")}
        await client.topic("t")
        await client.publish("t", "w", key="k")
    assert hosts.broker.values("t") == [b"v", b"w"]


async def test_a_publish_that_is_not_idempotent_moves_on_only_where_nothing_was_sent(
    hosts: Hosts, clock: InstantClock
) -> None:
    transport = httpx.MockTransport(hosts.handle)
    async with AsyncClient(ADDRESSES, http_transport=transport, clock=clock, idempotent=False) as client:
        hosts.down = {"a": None}
        await client.publish("t", "v")
    assert hosts.broker.values("t") == [b"v"]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("how", ["publish", "publish_many", "producer"])
async def test_finding_the_owners_counts_for_the_time_that_a_publish_may_take(
    clock: InstantClock, how: str, idempotent: bool
) -> None:
    async def silent(request: httpx.Request) -> httpx.Response:
        await clock.sleep(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("no answer", request=request)

    transport = httpx.MockTransport(silent)
    async with AsyncClient(
        "http://a", http_transport=transport, clock=clock, idempotent=idempotent, **patience(8)
    ) as client:
        began_seconds = clock.monotonic_seconds()
        with pytest.raises(OutcomeUnknown):
            if how == "publish":
                await client.publish("t", "v")
            elif how == "publish_many":
                await client.publish_many("t", ["v"])
            else:
                async with client.producer("t", linger_seconds=0) as producer:
                    await (await producer.send("v"))
        assert 7 < clock.monotonic_seconds() - began_seconds < 9


def test_addresses_may_be_a_list_or_separated_by_commas() -> None:
    expected = ("http://a:1", "https://b")
    assert parse_addresses("http://a:1, https://b/") == expected
    assert parse_addresses(["http://a:1", "https://b", "http://a:1/"]) == expected


@pytest.mark.parametrize(("text", "which"), [("http://a,", "2 of 2"), (",http://a", "1 of 2"), ("a,, b", "2 of 3")])
def test_of_addresses_separated_by_commas_the_empty_one_is_told(text: str, which: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^address {which} is empty: put one comma between two"):
        parse_addresses(text)


@pytest.mark.parametrize(
    "bad",
    ["", [], ["a:1"], "http://a:99999", "http://a:0"],
    ids=["empty", "no address", "no scheme", "port beyond all", "port 0"],
)
def test_invalid_addresses_are_refused(bad: str | list[str]) -> None:
    with pytest.raises(InvalidArgument):
        parse_addresses(bad)


@pytest.mark.parametrize(
    ("given", "reported", "admitted"),
    [
        ("http://mq.example.com", "http://10.0.0.1:8080", True),
        ("http://mq.example.com", "http://127.0.0.1:8080", False),
        ("http://mq.example.com", "http://localhost:8080", False),
        ("http://mq.example.com", "http://[::1]:8080", False),
        ("http://localhost:8080", "http://127.0.0.1:8081", True),
        ("https://mq.example.com", "http://10.0.0.1:8080", False),
        ("https://mq.example.com", "https://b1.example.com", True),
    ],
)
def test_an_address_that_is_invalid_for_this_client_is_not_used(given: str, reported: str, admitted: bool) -> None:
    assert Addresses([given]).admits(reported) is admitted


@pytest.mark.parametrize("seconds", [0, -1, 3600])
def test_a_delivery_timeout_beyond_what_brokers_remember_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="delivery_timeout_seconds"):
        AsyncClient(delivery_timeout_seconds=seconds)


@pytest.mark.parametrize(
    "settings",
    [{"producer_id": ""}, {"producer_id": "a b"}, {"first_sequence": -1}, {"producer_id": "p", "idempotent": False}],
)
async def test_an_invalid_identity_is_refused(several: AsyncClient, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        several.producer("t", **settings)  # type: ignore[arg-type]


async def test_a_producers_identity_is_its_own_unless_given(several: AsyncClient, hosts: Hosts) -> None:
    assert several.producer("t").producer_id != several.producer("t").producer_id
    assert several.producer("t", idempotent=False).producer_id is None
    async with several.producer("t", producer_id="mine", first_sequence=7) as producer:
        await producer.send("v")
    assert list(hosts.broker.topics["t"].answered) == [("mine", 7)]
