"""A request that takes long goes on only while it is allowed."""

from typing import Any

import pytest
from starlette.types import Message

from filer.errors import BraidError
from mq.base.errors import Unauthenticated
from mq.http.rechecked import Rechecked
from mq.http.reply import BrokenOff
from mq.security.standing import REVIEW_SECONDS

START: Message = {"type": "http.response.start", "status": 200, "headers": []}
PIECE: Message = {"type": "http.response.body", "body": b"x", "more_body": True}
BODY: Message = {"type": "http.request", "body": b"x", "more_body": True}


class World:
    """A request, what was sent to its client, and the time."""

    def __init__(self, method: str = "GET", path: str = "/v1/topics/t/messages") -> None:
        self.now_seconds = 0.0
        self.refusal: BraidError | None = None
        self.sent: list[Message] = []
        self.looks = 0
        self.recorded: list[BraidError] = []
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path}
        self.request = Rechecked(
            scope, self._receive, self._send, self._admit, self._record_end, lambda: self.now_seconds
        )

    async def _receive(self) -> Message:
        return BODY

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def _record_end(self, refusal: BraidError) -> None:
        self.recorded.append(refusal)

    def _admit(self) -> BraidError | None:
        self.looks += 1
        return self.refusal

    def revoke(self, *, after_seconds: float = 2 * REVIEW_SECONDS) -> None:
        self.now_seconds += after_seconds
        self.refusal = Unauthenticated("it has ended")


async def test_a_body_is_not_given_on_once_the_token_has_ended() -> None:
    world = World("POST")
    assert await world.request.receive() == BODY
    world.revoke()
    with pytest.raises(Unauthenticated):
        await world.request.receive()


async def test_an_answer_that_has_begun_is_broken_off() -> None:
    world = World()
    await world.request.send(START)
    await world.request.send(PIECE)
    world.revoke()
    with pytest.raises(BrokenOff):
        await world.request.send(PIECE)
    assert world.sent == [START, PIECE] and world.recorded == [world.refusal]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/topics/t/messages"), ("POST", "/v1/topics/t/groups/g/claims")]
)
async def test_messages_are_not_answered_to_who_may_not_have_them_any_more(method: str, path: str) -> None:
    world = World(method, path)
    world.revoke()
    await world.request.send(START)
    await world.request.send(PIECE)
    assert [message.get("status") for message in world.sent if "status" in message] == [401]
    assert PIECE not in world.sent


async def test_who_has_changed_something_is_told_so() -> None:
    world = World("PUT", "/v1/topics/t")
    world.revoke()
    await world.request.send(START)
    assert world.sent == [START]


@pytest.mark.parametrize("path", ["/v1/topics/t/subscribe", "/v1/topics/t/socket"])
async def test_what_lasts_tells_its_end_by_itself(path: str) -> None:
    world = World("GET", path)
    world.revoke()
    await world.request.send(START)
    await world.request.send(PIECE)
    assert world.sent == [START, PIECE] and world.recorded == []


async def test_it_is_looked_at_from_time_to_time() -> None:
    world = World()
    for _ in range(12):
        await world.request.send(PIECE)
        world.now_seconds += REVIEW_SECONDS / 4
    assert world.looks == 2
