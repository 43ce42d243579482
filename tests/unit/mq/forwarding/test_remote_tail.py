"""Following a segment at its owner: where that comes to nothing, whoever reads is not woken again and again."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from filer.clock import ManualClock, settle
from filer.errors import BraidError
from filer.segment.next_file import Accepted, join
from filer.segment.segment_log import SegmentRef
from mq.base.errors import PeerUnreachable
from mq.forwarding.remote_tail import IDLE_SECONDS, RETRY_SECONDS, RemoteTail
from mq.limits.front_store import FrontStore
from mq.peers.answer_forms import TailPage
from mq.peers.peers import Peers
from tests.support.segment.segment_owners import single

REF = SegmentRef("t", 0)


class FakePeers:
    """Answers as the test says; where it says nothing, with nothing once it is `resumed`."""

    def __init__(self) -> None:
        self.answers: list[TailPage] = []
        self.resumed = asyncio.Event()
        self.answer: TailPage | BraidError | None = None

    async def tail(self, *arguments: object, **bounds: object) -> TailPage:
        if self.answers:
            return self.answers.pop(0)
        if self.answer is None:
            await self.resumed.wait()
            self.resumed.clear()
            return nothing(sealed=False)
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
    return TailPage(REF.schema.log.empty_table(), 0, sealed)


def page(*, base: int, sealed: bool = False) -> TailPage:
    """One message."""
    return TailPage(join(REF, [Accepted(single(b"x"), base, 1, 1, 1)], base), base + 1, sealed)


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


async def test_messages_that_retention_took_from_between_end_it(world: World) -> None:
    """Its tail has no gaps: who reads on from there begins another."""
    world.peers.answer = page(base=5)
    await world.follow()
    await world.clock.advance(RETRY_SECONDS)
    assert world.tail.ended and world.tail.tail.end == 0


async def test_what_a_sealed_segment_had_last_is_taken_before_it_ends(world: World) -> None:
    world.peers.answers = [page(base=0, sealed=False), page(base=1, sealed=True), page(base=2, sealed=True)]
    world.peers.answer = nothing(sealed=True)
    await world.follow()
    assert world.tail.tail.end == 3 and not world.tail.ended
    await world.clock.advance(RETRY_SECONDS)
    assert world.tail.ended and world.told == 4


async def test_it_goes_on_while_there_may_be_more(world: World) -> None:
    await world.follow()
    await world.clock.advance(RETRY_SECONDS * 10)
    assert not world.tail.ended and not world.told


async def test_it_ends_when_nobody_has_wanted_it_for_a_while(world: World) -> None:
    await world.follow()
    await world.clock.advance(IDLE_SECONDS - 1)
    world.tail.keep_alive()
    await world.clock.advance(IDLE_SECONDS - 1)
    world.peers.resumed.set()
    await settle()
    assert not world.tail.ended
    await world.clock.advance(2)
    world.peers.resumed.set()
    await settle()
    assert world.tail.ended
