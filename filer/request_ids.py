"""The id of the request, or of the leader's work, for which the code at hand runs: every line of the log carries it.

Clients give it as `X-Request-Id`, or a broker makes it; brokers pass it on to each other. It is for people who search
the log, and decides nothing. Another id, made of a producer and a sequence, recognises a repeated publish
(`filer.format.requests.RequestId`).
"""

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, ContextVar
from itertools import count, islice

from filer.clock import Clock
from filer.within import Within

HEADER = "x-request-id"
MOST_CHARACTERS = 128
MOST_TOGETHER = 8
"""A call to another broker that serves several requests carries at most so many of their ids."""
_ONE = rf"[A-Za-z0-9._:;/+=@~-]{{1,{MOST_CHARACTERS}}}"
_PATTERN = re.compile(_ONE.encode() + rb"\Z")
_SEVERAL = re.compile(rf"{_ONE}(?:,{_ONE}){{0,{MOST_TOGETHER - 1}}}\Z".encode())


class Work:
    """The work that has an id. Once it has `ended`, tasks that it started and that outlive it are no part of it."""

    __slots__ = ("ended", "id")

    def __init__(self, id_: str) -> None:
        self.id, self.ended = id_, False


_current: ContextVar[Work | None] = ContextVar("request", default=None)


def current() -> str | None:
    """The id of the running task's request; None if it serves no request."""
    work = _current.get()
    return None if work is None or work.ended else work.id


def begin(id_: str) -> Work:
    """Give this id to the running task, which does nothing else, until its caller sets `ended`.

    Each request calls this: `within` would take half a microsecond longer.
    """
    work = Work(id_)
    _current.set(work)
    return work


class _WithinWork(Within[Work | None]):
    __slots__ = ()

    def __exit__(self, *_: object) -> None:
        if self._value is not None:
            self._value.ended = True
        super().__exit__()


def within(id_: str | None) -> AbstractContextManager[None]:
    """Gives this id to everything inside, and to tasks that are started inside, until the end of the block.

    None changes nothing: the block keeps the current id, if there is one.
    """
    return nullcontext() if id_ is None else _WithinWork(_current, Work(id_))


def of_work(clock: Clock) -> AbstractContextManager[None]:
    """For work without a request, such as that of a leader: a new id, unless there is one already."""
    return within(None if current() is not None else clock.ulid())


def of_nobody() -> Context:
    """The context for a task that serves many requests: it must not belong to the one that happens to start it."""
    return Context()


def joined(ids: Iterable[str | None]) -> str | None:
    """One id for work that serves several requests: those of the first few, separated by commas."""
    known: dict[str, None] = {}
    for each in ids:
        known.update(dict.fromkeys(each.split(",")) if each is not None else {})
        if len(known) >= MOST_TOGETHER:
            break
    return ",".join(islice(known, MOST_TOGETHER)) or None


def taken(given: bytes, *, of_broker: bool) -> str | None:
    """The id in a header; None if it cannot go into a log as it is. Brokers may give several, joined."""
    return given.decode("ascii") if (_SEVERAL if of_broker else _PATTERN).match(given) else None


def maker(clock: Clock) -> Callable[[], str]:
    """Makes unique ids. Each request needs one, so only the first part, drawn once, is random."""
    first, numbers = f"{clock.entropy(8).hex()}-", count(1)
    return lambda: f"{first}{next(numbers)}"
