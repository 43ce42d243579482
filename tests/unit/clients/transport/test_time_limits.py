"""How long a call takes at most while brokers do not answer."""

from collections.abc import AsyncIterator
from typing import Literal

import httpx
import pytest

from braidmq import AsyncClient, BraidMQError, Message, Retry
from braidmq.transport.patience import patience
from braidmq.transport.retry import share_of_time
from tests.support.broker.fake_broker import FakeBroker
from tests.support.instant_clock import InstantClock

Silence = Literal["connect", "read"]
HOSTS = ["a", "b", "c"]
ADDRESSES = [f"http://{host}" for host in HOSTS]


class SilentHosts:
    """One fake broker under several names. Those in `silent` answer nothing, to a connection or to a request."""

    def __init__(self, clock: InstantClock, silence: Silence) -> None:
        self.broker = FakeBroker()
        self.broker.add_topic("t")
        self.silent = set(HOSTS)
        self.asked: list[str] = []
        self._clock, self._silence = clock, silence

    async def handle(self, request: httpx.Request) -> httpx.Response:
        if request.url.host not in self.silent:
            return await self.broker.handle(request)
        self.asked.append(request.url.host)
        await self._clock.sleep(request.extensions["timeout"][self._silence])
        failure = httpx.ConnectTimeout if self._silence == "connect" else httpx.ReadTimeout
        raise failure("", request=request)


@pytest.fixture(params=["connect", "read"])
def hosts(request: pytest.FixtureRequest, clock: InstantClock) -> SilentHosts:
    return SilentHosts(clock, request.param)


async def first_message(client: AsyncClient) -> Message:
    return await anext(client.subscribe("t", from_="earliest"))


async def ask(client: AsyncClient, call: str) -> object:
    if call == "topic":
        return await client.topic("t")
    if call == "subscribe":
        return await first_message(client)
    return await client.publish("t", "v", key="k")


def client_of(hosts: SilentHosts, clock: InstantClock, seconds: float, *, idempotent: bool = True) -> AsyncClient:
    return AsyncClient(
        ADDRESSES,
        http_transport=httpx.MockTransport(hosts.handle),
        clock=clock,
        idempotent=idempotent,
        **patience(seconds),
    )


@pytest.fixture
async def patient(hosts: SilentHosts, clock: InstantClock) -> AsyncIterator[AsyncClient]:
    async with client_of(hosts, clock, 5) as client:
        yield client


@pytest.mark.parametrize("call", ["topic", "subscribe"])
async def test_silent_brokers_together_take_no_longer_than_was_said(
    call: str, patient: AsyncClient, hosts: SilentHosts, clock: InstantClock
) -> None:
    with pytest.raises(BraidMQError):
        await ask(patient, call)
    assert set(hosts.asked) == set(HOSTS)
    assert 4 < sum(clock.naps_seconds) <= 5.01


@pytest.mark.parametrize("idempotent", [True, False])
async def test_so_do_those_that_fall_silent_before_a_publish(
    idempotent: bool, hosts: SilentHosts, clock: InstantClock
) -> None:
    async with client_of(hosts, clock, 5, idempotent=idempotent) as client:
        hosts.silent = set()
        await client.publish("t", "v", key="k")
        hosts.silent = set(HOSTS)
        begun_seconds = sum(clock.naps_seconds)
        with pytest.raises(BraidMQError):
            await client.publish("t", "v", key="k")
        assert sum(clock.naps_seconds) - begun_seconds <= 5.01


@pytest.mark.parametrize("call", ["topic", "publish", "subscribe"])
async def test_a_broker_behind_silent_ones_is_asked_in_time(
    call: str, patient: AsyncClient, hosts: SilentHosts, clock: InstantClock
) -> None:
    hosts.silent = {"a", "b"}
    if call == "subscribe":
        hosts.silent = set()
        await patient.publish("t", "v")
        hosts.silent = {"a", "b"}
    assert await ask(patient, call)
    assert sum(clock.naps_seconds) <= 5


async def test_without_such_a_limit_each_try_has_the_time_of_the_client(clock: InstantClock) -> None:
    hosts = SilentHosts(clock, "read")
    retry = Retry(give_up_after_seconds=5)
    transport = httpx.MockTransport(hosts.handle)
    async with AsyncClient(ADDRESSES, timeout_seconds=7, retry=retry, http_transport=transport, clock=clock) as client:
        with pytest.raises(BraidMQError):
            await client.topic("t")
    assert sum(clock.naps_seconds) == pytest.approx(21, abs=0.1)


def test_a_share_is_never_less_than_a_quarter() -> None:
    assert [share_of_time(12, brokers) for brokers in (0, 1, 2, 3, 4, 5, 300)] == [12, 12, 6, 4, 3, 3, 3]
    assert share_of_time(-1, 3) > 0
