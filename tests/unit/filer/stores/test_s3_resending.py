"""A request goes out again, on a new connection, while no answer to it comes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from filer.stores.s3.s3_resending import first_answer

SOON_SECONDS = 0.01
Try = Callable[[], Awaitable[str]]


class Lines:
    """What becomes of each try, in their order; `sent` says for each whether it asked for a new connection."""

    def __init__(self, *tries: Try) -> None:
        self._tries = list(tries)
        self.sent: list[bool] = []
        self.cancelled = 0

    async def send(self, is_new: bool) -> str:
        self.sent.append(is_new)
        try:
            return await self._tries.pop(0)()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def answer(self) -> str:
        async with asyncio.timeout(30):
            return await first_answer(self.send, "key", after_seconds=SOON_SECONDS)


async def silent() -> str:
    await asyncio.Event().wait()
    raise AssertionError("not reached")


async def says_so() -> str:
    return "done"


def error(status: int, code: str) -> Try:
    async def fail() -> str:
        raise ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")

    return fail


async def cannot_connect() -> str:
    raise ConnectTimeoutError(endpoint_url="http://s3")


async def test_what_is_answered_at_once_is_sent_once() -> None:
    lines = Lines(says_so)
    assert await lines.answer() == "done" and lines.sent == [False]


async def test_a_silent_line_is_left_for_a_new_one() -> None:
    lines = Lines(silent, says_so)
    assert await lines.answer() == "done"
    assert (lines.sent, lines.cancelled) == ([False, True], 1)


async def test_it_goes_out_again_and_again_as_long_as_nothing_comes() -> None:
    """So a hole that takes long costs no more than one of these times after its end. Two are under way at most."""
    lines = Lines(silent, silent, cannot_connect, error(503, "SlowDown"), silent, says_so)
    assert await lines.answer() == "done"
    assert (lines.sent, lines.cancelled) == ([False, *[True] * 5], 3)


async def test_a_slow_store_answers_the_first_in_the_end() -> None:
    is_told = asyncio.Event()

    async def slow() -> str:
        await is_told.wait()
        return "late"

    async def tells() -> str:
        is_told.set()
        return await silent()

    assert await Lines(slow, silent, silent, tells, silent).answer() == "late"


async def test_that_it_exists_is_an_answer() -> None:
    """The caller finds out whether that was its own first try."""
    with pytest.raises(ClientError, match="PreconditionFailed"):
        await Lines(silent, error(412, "PreconditionFailed")).answer()


async def test_a_first_try_that_fails_alone_is_what_the_caller_is_told() -> None:
    with pytest.raises(ConnectTimeoutError):
        await Lines(cannot_connect).answer()


async def test_what_comes_too_late_is_discarded() -> None:
    both = asyncio.Event()
    discarded: list[str] = []

    async def send(is_new: bool) -> str:
        if is_new:
            both.set()
        await both.wait()
        return "again" if is_new else "first"

    async def discard(answer: str) -> None:
        discarded.append(answer)

    assert await first_answer(send, "key", after_seconds=SOON_SECONDS, discard=discard) == "first"
    assert discarded == ["again"]
