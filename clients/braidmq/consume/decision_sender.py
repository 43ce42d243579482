"""Sends acks and releases in the background, and reports when all of them are answered."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from braidmq.consume.decisions import Outcome, Request, Taken, requests_of
from braidmq.consume.group_calls import GroupCalls
from braidmq.errors import GroupNotFound, InvalidRequest
from braidmq.transport.retry import Retry

_MOST_REQUESTS = 8
_CLOSING = Retry(give_up_after_seconds=5)
"""A worker that ends does not wait for long: messages without an ack come again."""


class DecisionSender:
    """Sends decisions about messages, in rounds: while one is under way, the next collects.

    Safe at any point: messages whose decisions a stopped process has not sent are delivered again, and a repeated ack
    gets the same answer as the first. `done` is called with the messages of each answer, and with those of them that
    another worker had by then. While no broker answers, the same requests are tried again, unless it `is_closing`. An
    error that repeating does not mend is kept in `failure`.
    """

    def __init__(self, calls: GroupCalls, done: Callable[[Iterable[Taken], set[Taken]], None]) -> None:
        self._calls, self._done = calls, done
        self._decided: deque[tuple[Taken, Outcome]] = deque()
        self._news = asyncio.Event()
        self._round_is_over = asyncio.Event()
        self._at_once = asyncio.Semaphore(_MOST_REQUESTS)
        self._started = self._finished = 0
        self.is_closing = False
        self.failure: Exception | None = None

    def add(self, taken: Taken, outcome: Outcome) -> None:
        """Take a decision. May be called from any thread; then call `wake` in the loop's."""
        self._decided.append((taken, outcome))

    def wake(self) -> None:
        """Send the decisions taken."""
        self._news.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._decided:
                await self._round()

    async def flush(self) -> None:
        """Wait until all decisions taken before are answered. Raises `failure`."""
        wanted = self._started + bool(self._decided)
        while self._finished < wanted:
            await self._round_is_over.wait()
        if self.failure is not None:
            raise self.failure

    async def _round(self) -> None:
        self._started += 1
        decided = [self._decided.popleft() for _ in range(len(self._decided))]
        await asyncio.gather(*map(self._settle, requests_of(decided)))
        self._finished = self._started
        self._round_is_over.set()
        self._round_is_over.clear()

    async def _settle(self, request: Request) -> None:
        async with self._at_once:
            lost = await self._answer(request)
        self._done(request.taken, lost)

    async def _answer(self, request: Request) -> set[Taken]:
        """Send a request until it is answered; returns the messages for which it came too late."""
        while True:
            try:
                retry = _CLOSING if self.is_closing else None
                return await self._calls.decide(request, retry=retry)
            except GroupNotFound:
                return set(request.taken)
            except InvalidRequest:
                # The group was deleted and created again: it does not know earlier claims.
                if len(request.parts) == 1:
                    return set(request.taken)
                alone = [replace(request, parts=[part]) for part in request.parts]
                return set().union(*[await self._answer(each) for each in alone])
            except Exception as failure:  # whatever it is, it belongs to the caller that waits for answers
                if not getattr(failure, "retryable", False) or self.is_closing:
                    self.failure = failure
                    return set(request.taken)
            transport = self._calls.transport
            await transport.clock.sleep(transport.pause_seconds(1, transport.retry))
