from collections.abc import AsyncIterator

import pytest

from braidmq import AsyncClient
from tests.support.broker.fake_broker import FakeBroker
from tests.support.instant_clock import InstantClock

URL = "http://127.0.0.1:8080"


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def clock() -> InstantClock:
    return InstantClock()


@pytest.fixture
async def client(broker: FakeBroker, clock: InstantClock) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(URL, http_transport=broker.transport, clock=clock) as client:
        yield client


@pytest.fixture
async def cautious(broker: FakeBroker, clock: InstantClock) -> AsyncIterator[AsyncClient]:
    """A client without producer ids: brokers cannot recognise its repeated publishes."""
    async with AsyncClient(
        URL, http_transport=broker.transport, clock=clock, idempotent=False, direct=False
    ) as cautious:
        yield cautious
