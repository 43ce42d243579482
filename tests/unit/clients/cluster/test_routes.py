"""Routes: fetched once for concurrent callers, never replaced by older ones, and refreshed after a time."""

import asyncio
from typing import Any

import httpx
import pytest

from braidmq.cluster.admin import Admin
from braidmq.cluster.routes import Routes, TopicRoute, UnreachableOwners
from braidmq.models import Owner
from braidmq.positions import PositionRange
from braidmq.transport.addresses import Addresses
from braidmq.transport.retry import Retry
from braidmq.transport.tokens import Token
from braidmq.transport.transport import Transport
from filer.clock import ManualClock
from tests.support.broker.fake_broker import refused


class RouteServer:
    """A broker that answers with `segments` and `version`, or refuses."""

    def __init__(self) -> None:
        self.version = 1
        self.segments: list[dict[str, Any]] = [_entry(0, 0, 65_536, "a")]
        self.refuses = False
        self.fetches = 0

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.fetches += 1
        await asyncio.sleep(0)
        if self.refuses:
            raise refused(request)
        return httpx.Response(200, json={"topic": "t", "version": self.version, "segments": self.segments})


def _entry(segment: int, start: int, stop: int, broker: str, url: str | None = "http://o") -> dict[str, Any]:
    return {"segment": segment, "range": [start, stop], "owner": {"broker": broker, "url": url}}


@pytest.fixture
def server() -> RouteServer:
    return RouteServer()


@pytest.fixture
def hand() -> ManualClock:
    return ManualClock()


@pytest.fixture
def route(server: RouteServer, hand: ManualClock) -> TopicRoute:
    addresses = Addresses(["http://b"])
    transport = Transport(
        addresses, headers={}, token=Token(None, None, hand), timeout_seconds=1, connect_timeout_seconds=1,
        retry=Retry(), clock=hand,
        http_transport=httpx.MockTransport(server.handle),
    )  # fmt: skip
    return Routes(Admin(transport), addresses, hand).of("t")


async def test_concurrent_refreshes_share_one_fetch(route: TopicRoute, server: RouteServer, hand: ManualClock) -> None:
    seen = await route.current()
    server.version, server.segments = 2, [_entry(1, 0, 100, "a"), _entry(2, 100, 65_536, "b")]
    await hand.advance(1)
    assert await asyncio.gather(*(route.refresh(seen) for _ in range(20))) == [True] * 20
    assert server.fetches == 2
    assert await route.refresh(seen)
    assert server.fetches == 2
    owners = [route.owner_of(slot) for slot in (0, 99, 100, 65_535)]
    assert [owner.broker for owner in owners if owner is not None] == ["a", "a", "b", "b"]


async def test_a_broker_that_lags_behind_does_not_bring_back_an_old_route(
    route: TopicRoute, server: RouteServer, hand: ManualClock
) -> None:
    server.version = 7
    known = await route.current()
    server.version, server.segments = 6, [_entry(5, 0, 65_536, "z")]
    await hand.advance(1)
    assert not await route.refresh(known)
    await hand.advance(60)  # no broker lags for that long: it is another topic
    assert await route.refresh(known)


async def test_an_answer_with_another_segment_marks_the_route_as_out_of_date(
    route: TopicRoute, server: RouteServer, hand: ManualClock
) -> None:
    await route.current()
    await hand.advance(1)
    route.check([PositionRange(0, 5, 1)])
    await route.current()
    assert server.fetches == 1
    server.version, server.segments = 2, [_entry(1, 0, 65_536, "b")]
    route.check([PositionRange(1, 0, 1)])
    newer = await route.current()
    assert newer is not None
    assert newer.version == 2


async def test_a_failed_fetch_keeps_the_known_route_and_is_not_repeated_at_once(
    route: TopicRoute, server: RouteServer, hand: ManualClock
) -> None:
    server.refuses = True
    assert await route.current() is None
    assert await route.current() is None
    assert server.fetches == 1
    server.refuses = False
    await hand.advance(1)
    known = await route.current()
    server.refuses = True
    await hand.advance(1)
    assert not await route.refresh(known)
    assert route.known is known


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8080"])
async def test_an_owner_without_a_usable_address_is_none(
    route: TopicRoute, server: RouteServer, url: str | None
) -> None:
    server.segments = [_entry(0, 0, 65_536, "a", url)]
    await route.current()
    assert route.owner_of(7) is None


async def test_an_unreachable_owner_is_avoided_for_longer_each_time(hand: ManualClock) -> None:
    unreachable_owners = UnreachableOwners(hand)
    owner, restarted = Owner(broker="a@1", url="http://a"), Owner(broker="a@2", url="http://a")
    avoided = []
    for _ in range(8):
        unreachable_owners.add(owner)
        assert restarted not in unreachable_owners
        seconds = 0
        while owner in unreachable_owners:
            seconds += 10
            await hand.advance(10)
        avoided.append(seconds)
    assert avoided == [30, 60, 120, 240, 480, 600, 600, 600]
