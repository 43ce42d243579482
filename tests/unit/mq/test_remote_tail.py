"""Following a segment at its owner: where that comes to nothing, whoever reads is not woken again and again."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from filer.clock import ManualClock, settle
from filer.errors import BraidError
from filer.segment_log import SegmentRef
from mq.errors import PeerUnreachable
from mq.front_store import FrontStore
from mq.peers import Peers, TailPage
from mq.remote_tail import RETRY_SECONDS, RemoteTail

REF = SegmentRef("t", 0)


class FakePeers:
    """Answers as the test says; waits for ever where it says nothing."""

    def __init__(self) -> None:
        self.answer: TailPage | BraidError | None = None

    async def tail(self, *place: object, **bounds: object) -> TailPage:
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, BraidError):
            raise self.answer
        assert self.answer is not None
        return self.answer


class World:
    """A tail of a segment at another broker, and how often its readers were woken."""

    def __init__(self) -> None:
        self.clock, self.peers = ManualClock(), FakePeers()
        self.url: str | None = "http://owner"
        self.told = 0

    async def follow(self) -> None:
        self.tail = RemoteTail(
            cast(Peers, self.peers),
            self.clock,
            FrontStore(1 << 20),
            REF,
            url=lambda: self.url,
            offset=0,
            on_news=self._tell,
        )
        await settle()

    def _tell(self) -> None:
        self.told += 1


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.tail.close()


def nothing(*, sealed: bool) -> TailPage:
    return TailPage(REF.schema.empty_table(), 0, sealed)


@pytest.mark.parametrize("trouble", ["gone", "silent", "sealed"])
async def test_it_ends_a_moment_after_there_is_nothing_to_follow(world: World, trouble: str) -> None:
    """The topic's record says so soon; until then its readers would ask as fast as they can."""
    world.url = None if trouble == "gone" else world.url
    world.peers.answer = nothing(sealed=True) if trouble == "sealed" else PeerUnreachable()
    await world.follow()
    await world.clock.advance(RETRY_SECONDS / 2)
    assert not world.tail.ended and not world.told
    await world.clock.advance(RETRY_SECONDS)
    assert world.tail.ended and world.told == 1


async def test_it_goes_on_while_there_may_be_more(world: World) -> None:
    await world.follow()
    await world.clock.advance(RETRY_SECONDS * 10)
    assert not world.tail.ended and not world.told
