"""Long work of Python takes turns on the event loop: a step at a time, each kind of work and each client its share.

Without it, 200 readers that are woken together keep all other clients waiting for the work of all 200. Publishes take
no turns, except to decode long JSON.
"""

import asyncio
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from types import TracebackType

from mq.limits.fair_line import FairLine

ASKER: ContextVar[Hashable] = ContextVar("asker", default=None)
"""The client connection that the work is for."""
ROUNDS = 4
"""Rounds between two steps, while a publish is under way: it takes a few rounds of the loop, short without steps."""
MOST_ROUNDS = 32
"""Rounds between two steps, while connections come: libuv accepts one in each round."""
LONGEST_PAUSE_SECONDS = 0.005
MOST_PAUSED_SECONDS = 0.02
"""Steps stand back for that long in all, and then for as long as they take: for half of the time, if it goes on."""
# The cost of a turn that began at once: no work waited for it, so it is not measured. If it took longer than the other,
# the system most likely interrupted it.
_USUAL_SECONDS, _MOST_SECONDS = 0.0005, 0.005


class _Publishing:
    """Counts publishes under way. A class, and no generator: every publish comes through here."""

    def __init__(self) -> None:
        self.under_way = 0

    def __enter__(self) -> None:
        self.under_way += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.under_way -= 1


class Line:
    """One kind of work. Its turns are shared among the connections that ask for it."""

    def __init__(self, turns: "Turns") -> None:
        self._turns = turns
        self.waiting: FairLine[asyncio.Future[None]] = FairLine()
        self.end_seconds = 0.0

    async def wait(self) -> None:
        """Wait for a turn. It lasts until the caller waits for anything."""
        asker = ASKER.get()
        if self._turns.begins_at_once(self, asker):
            return
        waiter = asyncio.get_running_loop().create_future()
        self.waiting.add(asker, waiter)
        self._turns.look()
        await waiter


class Turns:
    """One turn at a time, and a round of the event loop between two. Work does not wait if none is before it.

    `storing` returns whether this machine encodes a file, whose thread needs the interpreter again and again; `stored`
    has to be called when it no longer does. Belongs to one event loop.
    """

    def __init__(self, now: Callable[[], float], storing: Callable[[], bool] = lambda: False) -> None:
        self._now, self._storing = now, storing
        self.bodies, self.pages, self.streams, self.others = Line(self), Line(self), Line(self), Line(self)
        self._lines = (self.bodies, self.pages, self.streams, self.others)
        self.publishing = _Publishing()
        """A context in which a publish is under way."""
        # Whether other work would have to wait: during a turn, in the rounds behind it, and in a pause.
        self._busy = False
        self._rounds = self._quiet_rounds = 0
        self._has_connected = False
        self._may_pause_seconds = MOST_PAUSED_SECONDS
        self._pause: asyncio.TimerHandle | None = None
        # When the waiting turns began to stand back for a file, if they do.
        self._back_seconds: float | None = None
        self._began_seconds = self._latest_seconds = 0.0

    def connected(self) -> None:
        """Note that a connection has come, and others may wait to be accepted."""
        self._has_connected = True

    def stored(self) -> None:
        """Go on, since no file is encoded any more."""
        if self._pause is not None:
            self._pause.cancel()
            self._go_on()

    def begins_at_once(self, line: Line, asker: Hashable) -> bool:
        """Whether nothing is before this. If so, a turn of that kind begins."""
        if self._busy or self._storing():
            return False
        self._busy = True
        self._charge(line, asker, _USUAL_SECONDS)
        self._begin_gap()
        return True

    def look(self) -> None:
        """Begin a turn if possible, since a caller waits in one of the lines."""
        if not self._busy:
            self._busy = True
            self._next()

    def _begin_gap(self) -> None:
        """Let rounds of the event loop go by before the next turn."""
        self._rounds = self._quiet_rounds = 0
        asyncio.get_running_loop().call_soon(self._look_at_round)

    def _look_at_round(self) -> None:
        self._rounds += 1
        self._quiet_rounds = 0 if self._has_connected else self._quiet_rounds + 1
        self._has_connected = False
        if self._quiet_rounds >= (ROUNDS if self.publishing.under_way else 1) or self._rounds >= MOST_ROUNDS:
            self._next()
        else:
            asyncio.get_running_loop().call_soon(self._look_at_round)

    def _next(self) -> None:
        if (left_seconds := self._pause_left_seconds()) > 0:
            self._pause = asyncio.get_running_loop().call_later(left_seconds, self._go_on)
            return
        while waiting := [line for line in self._lines if line.waiting]:
            line = min(waiting, key=lambda line: line.end_seconds)
            asker, waiter = line.waiting.pop()
            if not waiter.done():  # a cancelled caller does not wait any more
                self._begin_turn(line, asker, waiter)
                return
        self._busy = False

    def _begin_turn(self, line: Line, asker: Hashable, waiter: "asyncio.Future[None]") -> None:
        # The caller goes on in the next round, right between these two.
        loop = asyncio.get_running_loop()
        loop.call_soon(self._begin)
        waiter.set_result(None)
        loop.call_soon(self._end_turn, line, asker)

    def _begin(self) -> None:
        self._began_seconds = self._now()

    def _end_turn(self, line: Line, asker: Hashable) -> None:
        took_seconds = min(self._now() - self._began_seconds, _MOST_SECONDS)
        self._charge(line, asker, took_seconds)
        self._may_pause_seconds = min(self._may_pause_seconds + took_seconds, MOST_PAUSED_SECONDS)
        self._begin_gap()

    def _charge(self, line: Line, asker: Hashable, took_seconds: float) -> None:
        # No line saves up turns that it did not use.
        self._latest_seconds = max(self._latest_seconds, line.end_seconds)
        line.end_seconds = self._latest_seconds + took_seconds
        line.waiting.charge(asker, took_seconds)

    def _pause_left_seconds(self) -> float:
        """How long the waiting turns still stand back for a file.

        Once that is over they have their share, whatever else is ready, and however long the file takes.
        """
        now_seconds, back_seconds = self._now(), self._back_seconds
        if self._storing() and any(line.waiting for line in self._lines):
            if back_seconds is None:
                back_seconds = self._back_seconds = now_seconds
            longest_seconds = min(LONGEST_PAUSE_SECONDS, self._may_pause_seconds)
            if (left_seconds := back_seconds + longest_seconds - now_seconds) > 0:
                return left_seconds
        if back_seconds is not None:
            self._may_pause_seconds -= now_seconds - back_seconds
            self._back_seconds = None
        return 0.0

    def _go_on(self) -> None:
        self._pause = None
        self._next()
