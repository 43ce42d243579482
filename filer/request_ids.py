"""The id of the request, or of the leader's work, for which the code at hand runs: every line of the log carries it.

Clients give it as `X-Request-Id`, or a broker makes it; brokers pass it on to each other. It is for people who look for
what belongs together, and decides nothing. The id by which a repeated publish is recognised is another one, made of a
producer and a sequence (`filer.format.requests.RequestId`).
"""

import re
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar
from itertools import count, islice

from filer.clock import Clock

HEADER = "x-request-id"
MOST_CHARACTERS = 128
MOST_TOGETHER = 8
"""A call to another broker that serves several requests carries the ids of so many of them."""
_ONE = rf"[A-Za-z0-9._:;/+=@~-]{{1,{MOST_CHARACTERS}}}"
_PATTERN = re.compile(_ONE.encode() + rb"\Z")
_SEVERAL = re.compile(rf"{_ONE}(?:,{_ONE}){{0,{MOST_TOGETHER - 1}}}\Z".encode())


class _Work:
    """What an id was given to. Tasks that it started, and that outlive it, do not belong to it any more."""

    __slots__ = ("ended", "id")

    def __init__(self, id_: str) -> None:
        self.id, self.ended = id_, False


_current: ContextVar[_Work | None] = ContextVar("request", default=None)


def current() -> str | None:
    """The id of what the running task does; None if it does that for no request."""
    work = _current.get()
    return None if work is None or work.ended else work.id


class within:  # noqa: N801 - used as `with within(id):`, for each request: a generator would take three times as long
    """Everything inside, and in tasks that are started inside, has this id until the end of the block.

    None changes nothing: the block goes on with the id that there is, if there is one.
    """

    __slots__ = ("_token", "_work")

    def __init__(self, id_: str | None) -> None:
        self._work = None if id_ is None else _Work(id_)

    def __enter__(self) -> None:
        if self._work is not None:
            self._token = _current.set(self._work)

    def __exit__(self, *_: object) -> None:
        if self._work is not None:
            self._work.ended = True
            _current.reset(self._token)


def of_work(clock: Clock) -> within:
    """For work that nobody requested, such as that of a leader: a new id, unless it is part of what has one."""
    return within(None if current() is not None else clock.ulid())


def of_nobody() -> Context:
    """The context for a task that serves many, so that it does not belong to the request that happens to start it."""
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
    """The id in a header; None if it is not one that goes into a log as it is. Brokers may give several, joined."""
    return given.decode("ascii") if (_SEVERAL if of_broker else _PATTERN).match(given) else None


def maker(clock: Clock) -> Callable[[], str]:
    """Makes ids that nobody else makes: this runs for each request, so that only their beginning is drawn."""
    begin, numbers = clock.entropy(8).hex(), count(1)
    return lambda: f"{begin}-{next(numbers):x}"
