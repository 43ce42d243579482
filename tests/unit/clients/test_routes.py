"""What a client knows of where segments are: looked up once for all who ask, never back in time, never for ever."""

import asyncio
from typing import Any

import httpx
import pytest

from braidmq.addresses import Addresses
from braidmq.admin import Admin
from braidmq.models import Owner
from braidmq.positions import PositionRange
from braidmq.retry import Retry
from braidmq.routes import Detours, Routes, TopicRoute
from braidmq.transport import Transport
from filer.clock import ManualClock
from tests.support.fake_broker import refused


class Told:
    """A broker that tells `segments` in that `version`, or refuses."""

    def __init__(self) -> None:
        self.version = 1
        self.segments: list[dict[str, Any]] = [_entry(0, 0, 65_536, "a")]
        self.refuses = False
        self.asked = 0

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        await asyncio.sleep(0)
        if self.refuses:
            raise refused(request)
        return httpx.Response(200, json={"topic": "t", "version": self.version, "segments": self.segments})


def _entry(segment: int, start: int, stop: int, broker: str, url: str | None = "http://o") -> dict[str, Any]:
    return {"segment": segment, "range": [start, stop], "owner": {"broker": broker, "url": url}}


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def hand() -> ManualClock:
    return ManualClock()


@pytest.fixture
def route(told: Told, hand: ManualClock) -> TopicRoute:
    addresses = Addresses(["http://b"])
    transport = Transport(
        addresses, headers={}, timeout_seconds=1, connect_timeout_seconds=1, retry=Retry(), clock=hand,
        http_transport=httpx.MockTransport(told.handle),
    )  # fmt: skip
    return Routes(Admin(transport), addresses, hand).of("t")


async def test_all_who_find_it_out_of_date_at_once_share_one_look(
    route: TopicRoute, told: Told, hand: ManualClock
) -> None:
    seen = await route.current()
    told.version, told.segments = 2, [_entry(1, 0, 100, "a"), _entry(2, 100, 65_536, "b")]
    await hand.advance(1)
    assert await asyncio.gather(*(route.refresh(seen) for _ in range(20))) == [True] * 20
    assert told.asked == 2
    assert await route.refresh(seen)
    assert told.asked == 2
    owners = [route.owner_of(slot) for slot in (0, 99, 100, 65_535)]
    assert [owner.broker for owner in owners if owner is not None] == ["a", "a", "b", "b"]


async def test_a_broker_that_lags_behind_does_not_turn_time_back(
    route: TopicRoute, told: Told, hand: ManualClock
) -> None:
    told.version = 7
    known = await route.current()
    told.version, told.segments = 6, [_entry(5, 0, 65_536, "z")]
    await hand.advance(1)
    assert not await route.refresh(known)
    await hand.advance(60)  # nobody lags for that long: the topic is another one
    assert await route.refresh(known)


async def test_an_answer_that_names_another_segment_tells_that_the_route_is_out_of_date(
    route: TopicRoute, told: Told, hand: ManualClock
) -> None:
    await route.current()
    await hand.advance(1)
    route.check([PositionRange(0, 5, 1)])
    await route.current()
    assert told.asked == 1
    told.version, told.segments = 2, [_entry(1, 0, 65_536, "b")]
    route.check([PositionRange(1, 0, 1)])
    newer = await route.current()
    assert newer is not None
    assert newer.version == 2


async def test_a_look_that_fails_leaves_what_is_known_and_is_not_repeated_at_once(
    route: TopicRoute, told: Told, hand: ManualClock
) -> None:
    told.refuses = True
    assert await route.current() is None
    assert await route.current() is None
    assert told.asked == 1
    told.refuses = False
    await hand.advance(1)
    known = await route.current()
    told.refuses = True
    await hand.advance(1)
    assert not await route.refresh(known)
    assert route.known is known


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8080"])
async def test_an_owner_without_an_address_for_this_client_is_none(
    route: TopicRoute, told: Told, url: str | None
) -> None:
    told.segments = [_entry(0, 0, 65_536, "a", url)]
    await route.current()
    assert route.owner_of(7) is None


async def test_an_owner_out_of_reach_is_avoided_for_longer_each_time(hand: ManualClock) -> None:
    detours = Detours(hand)
    owner, restarted = Owner(broker="a@1", url="http://a"), Owner(broker="a@2", url="http://a")
    avoided = []
    for _ in range(8):
        detours.avoid(owner)
        assert not detours.avoids(restarted)
        seconds = 0
        while detours.avoids(owner):
            seconds += 10
            await hand.advance(10)
        avoided.append(seconds)
    assert avoided == [30, 60, 120, 240, 480, 600, 600, 600]
