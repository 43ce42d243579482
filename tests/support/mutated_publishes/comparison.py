"""Sends the same bytes to two brokers, and compares their answers, what they stored, and what they still hold."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import HealthCheck, example, given, seed, settings

from filer.clock import settle
from tests.support.mutated_publishes.http_bytes import TALKS, deviations, head_of, request
from tests.support.mutated_publishes.pool import PASSED, SMUGGLED, Passed, pass_on, upgrading
from tests.support.mutated_publishes.sides import TOPICS, Side, side

_COMPARED = ("key", "key_base64", "value", "value_base64", "headers")


class Outcome(NamedTuple):
    """What became of some bytes on a connection of their own."""

    answered: list[bytes]
    closed: bool
    end_offsets: Sequence[dict[int, int]]


class Comparison:
    """Two brokers, the second without a fast path, and what runs their event loop."""

    def __init__(self, runner: asyncio.Runner, fast: Side, asgi: Side) -> None:
        self._runner, self._fast, self._asgi = runner, fast, asgi

    def compare(self, talk: Sequence[Sequence[bytes]]) -> None:
        """Send these pieces to both. Raises `AssertionError` if not all is alike."""
        fast, asgi = self._runner.run(self._outcomes(talk))
        assert fast == asgi, f"with the fast path: {fast}\nwithout it: {asgi}"

    def compare_each_deviation(self) -> None:
        """Compare each request that differs from a plain one in one thing, and a plain one behind it."""
        for data in deviations():
            self.compare([[data], [request()]])
            self.compare([[head_of(data)]])

    def compare_any(self, examples: int, *, seed_of_examples: int | None = None) -> None:
        """Compare so many examples, drawn with that seed. Raises what `compare` raises, for a small example."""

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @example([[request()], [request()]])
        @example([[request() + b"junk"]])
        @example([[request(length="3")]])
        @example([[request(length="9")]])
        @given(TALKS)
        def check(talk: list[list[bytes]]) -> None:
            self.compare(talk)

        (check if seed_of_examples is None else seed(seed_of_examples)(check))()

    def pass_on_any(self, examples: int, *, seed_of_examples: int | None = None) -> None:
        """Have both serve a proxy that pools connections, so many examples of it. Raises what `pass_on` raises."""

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @example([(upgrading(), False)])
        @example([(upgrading(), True)])
        @given(PASSED)
        def check(requests: list[tuple[Passed, bool]]) -> None:
            for each in (self._fast, self._asgi):
                self._runner.run(pass_on(each, requests))
                self._runner.run(_until_at_rest(each))

        (check if seed_of_examples is None else seed(seed_of_examples)(check))()

    def compare_stored(self) -> tuple[int, int]:
        """Compare all that is stored. Returns how many of the messages came by the fast path, and with a known head."""
        stored = [self._runner.run(_stored(each)) for each in (self._fast, self._asgi)]
        assert stored[0] == stored[1]
        keys = {message["key"] for messages in stored[0].values() for message in messages}
        assert SMUGGLED not in keys, "a body was read as a request"
        return self._fast.begun, self._fast.known

    async def _outcomes(self, talk: Sequence[Sequence[bytes]]) -> list[Outcome]:
        return [await _outcome(each, talk) for each in (self._fast, self._asgi)]


@contextlib.contextmanager
def comparison() -> Iterator[Comparison]:
    """Start both brokers, and end them at the end."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()

        async def start() -> list[Side]:
            return [await stack.enter_async_context(side(is_fast)) for is_fast in (True, False)]

        try:
            yield Comparison(runner, *runner.run(start()))
        finally:
            runner.run(stack.aclose())


async def _outcome(side: Side, talk: Sequence[Sequence[bytes]]) -> Outcome:
    connection = side.connect()
    answered = [await connection.send(*pieces) for pieces in talk]
    closed = connection.transport.closed
    await connection.end()
    await _until_at_rest(side)
    return Outcome(answered, closed, [await side.http.end_offsets(topic) for topic in TOPICS])


async def _until_at_rest(side: Side) -> None:
    async with asyncio.timeout(10):
        while not side.is_at_rest():
            await settle()


async def _stored(side: Side) -> dict[str, list[Any]]:
    return {topic: await _messages(side, topic) for topic in TOPICS}


async def _messages(side: Side, topic: str) -> list[Any]:
    found: list[Any] = []
    marker: dict[str, str] = {}
    while True:
        answer = await side.http.client.get(f"/v1/topics/{topic}/messages", params={"limit": 1000, **marker})
        page = answer.raise_for_status().json()
        if not page["messages"]:
            return found
        found += [{key: message.get(key) for key in _COMPARED} for message in page["messages"]]
        marker = {"marker": page["marker"]}
