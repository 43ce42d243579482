"""What fails for several who wait, or beside other tasks, holds nothing of a request once it is answered.

No garbage has to be collected for it (see `mq.base.end_tasks`): that happens seldom, and requests may hold megabytes.
"""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest

from filer.clock import SystemClock
from filer.errors import InvalidInput
from filer.format.requests import Position
from mq.administration.memberships import _each
from mq.base.errors import PublishIncomplete
from mq.base.single_flight import SingleFlight
from mq.groups.segment_groups import _all_done
from mq.http.endpoints.verification import _in_time
from mq.http.sockets.member_delivery import MemberDelivery
from mq.http.streaming.stream_page import StreamPage
from mq.http.streaming.stream_pages import Place, StreamPages
from mq.topic.topic_publisher import _moved_shares
from mq.transitions.hedged_call import hedged_call


class Held:
    """Something that a request holds."""


async def fails(held: Held) -> Any:
    await asyncio.sleep(0)
    raise InvalidInput(str(held))


class Member(MemberDelivery):
    """A member whose coordinator refuses all."""

    def __init__(self, held: Held) -> None:
        self.held, self._beat, self._look = held, asyncio.Event(), asyncio.Event()
        self._let_go, self._to_release, self._held = set(), set(), {}
        self.group, self.member_id, self._epoch, self._beat_seconds = "g", "m", 1, 1.0
        self._topic, self._broker = "t", Mock()

    async def _ask(self, operation: str, body: dict[str, Any], wait_seconds: float = 0.0) -> dict[str, Any]:
        await fails(self.held)
        raise AssertionError

    async def _keep_session(self) -> dict[str, Any]:
        await fails(self.held)
        raise AssertionError

    async def _deliver(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError


class Joining(Member):
    """One whose topic is there."""

    def __init__(self, held: Held) -> None:
        super().__init__(held)

        async def view(topic: str) -> None:
            return None

        self._broker.topics.view = view


class Pages(StreamPages):
    """Pages that cannot be read."""

    def __init__(self, held: Held) -> None:
        broker = Mock()
        broker.read_budget.limit_bytes = 1
        super().__init__(broker)
        self.held = held

    async def _read(self, place: Place, page_bytes: int) -> StreamPage:
        await fails(self.held)
        raise AssertionError


async def pages_of_two(held: Held) -> None:
    pages, place = Pages(held), Place(Mock(), 1, Mock(), frozenset())
    first = asyncio.create_task(pages.after(place, 1))
    await asyncio.sleep(0)
    try:
        await pages.after(place, 1)
    finally:
        await asyncio.wait([first])
        first.exception()
        del first


FLIGHT: list[SingleFlight] = []


async def flight(held: Held) -> None:
    """One that lives on, as those of a broker do."""
    FLIGHT[:] = [SingleFlight(lambda: given.pop()(), SystemClock(), name="flight")]
    given: list[Callable[[], Awaitable[Any]]] = [lambda: fails(held)]
    await FLIGHT[0]()


async def hedged(held: Held) -> None:
    await hedged_call(SystemClock(), [lambda: fails(held), lambda: asyncio.sleep(9)], patience_seconds=5)


async def all_done(held: Held) -> None:
    await _all_done([asyncio.ensure_future(fails(held))])


async def publish(held: Held) -> None:
    """A publish whose shares, which have its values, fail at their segments."""
    share: Any = held
    _moved_shares([share], [InvalidInput("")], [])


async def stored_in_part(held: Held) -> None:
    share: Any = held
    with pytest.raises(PublishIncomplete):
        _moved_shares([share, share], [[Position(0, 0, 1)], InvalidInput("")], [])
    raise InvalidInput("")


async def verification(held: Held) -> None:
    async def verdicts() -> AsyncGenerator[Any, None]:
        yield await fails(held)

    async for _ in _in_time(verdicts()):
        pass


@pytest.mark.parametrize(
    "failing",
    [
        lambda held: Member(held).run(),
        lambda held: Member(held)._hear(),
        lambda held: Joining(held).start(),
        pages_of_two,
        flight,
        hedged,
        lambda held: _each(["a", "b"], lambda _: fails(held)),
        all_done,
        publish,
        stored_in_part,
        verification,
    ],
    ids=[
        "member",
        "heartbeat",
        "join",
        "page",
        "single flight",
        "hedged call",
        "each",
        "all done",
        "publish",
        "part",
        "verification",
    ],
)
async def test_what_failed_holds_nothing_once_it_is_answered(failing: Callable[[Held], Awaitable[Any]]) -> None:
    held = Held()
    seen = weakref.ref(held)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(InvalidInput):
            await failing(held)
        del held
        await asyncio.sleep(0)
        assert seen() is None
    finally:
        gc.enable()
        FLIGHT.clear()
