"""Decisions about claimed messages, put together into few requests."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

MOST_PARTS = 5_000
"""The most ranges of a request: half as many as brokers accept."""
_MOST_REASON_CHARS = 500


class Taken(NamedTuple):
    """A claimed message: the token of its claim, and its offset."""

    token: str
    offset: int


class Part(NamedTuple):
    """The messages `[start, stop)` of a claim."""

    token: str
    start: int
    stop: int

    @property
    def body(self) -> dict[str, Any]:
        """The form that brokers accept."""
        return {"claim": self.token, "from": self.start, "to": self.stop}


@dataclass(frozen=True, slots=True)
class Ack:
    """The messages are done."""


@dataclass(frozen=True, slots=True)
class Release:
    """The messages are given back: after `delay_seconds` (None: the group's back-off), or as dead letters.

    Work on `untouched` ones has not begun: that alone makes no dead letters of them.
    """

    reason: str
    delay_seconds: float | None = None
    dead: bool = False
    untouched: bool = False

    @property
    def body(self) -> dict[str, Any]:
        """The form that brokers accept, without the messages."""
        return {name: value for name, value in asdict(self).items() if value is not None}


Outcome = Ack | Release


@dataclass(slots=True)
class Request:
    """The decision of one request about messages of several claims, and how often it was sent."""

    outcome: Outcome
    parts: Sequence[Part]
    tries: int = 0

    def count_try(self) -> None:
        """Count a try, as the request is sent."""
        self.tries += 1

    @property
    def taken(self) -> list[Taken]:
        """Its messages. Offsets between them that are no messages of the worker are among them."""
        return taken_of(self.parts)


def requests_of(decided: Iterable[tuple[Taken, Outcome]]) -> list[Request]:
    """As few requests as suffice: one for each outcome, with ranges of offsets."""
    by_outcome: dict[Outcome, list[Taken]] = {}
    for taken, outcome in decided:
        by_outcome.setdefault(outcome, []).append(taken)
    requests: list[Request] = []
    for outcome, messages in by_outcome.items():
        parts = iter(parts_of(messages))
        while some := list(islice(parts, MOST_PARTS)):
            requests.append(Request(outcome, some))
    return requests


def parts_of(messages: Iterable[Taken]) -> list[Part]:
    """Claimed messages as ranges, each of one claim."""
    parts: list[Part] = []
    for token, offset in sorted(messages):
        if parts and parts[-1].token == token and parts[-1].stop == offset:
            parts[-1] = parts[-1]._replace(stop=offset + 1)
        else:
            parts.append(Part(token, offset, offset + 1))
    return parts


def taken_of(parts: Iterable[Part]) -> list[Taken]:
    """The messages in these ranges, also those in between that are not the worker's."""
    return [Taken(part.token, offset) for part in parts for offset in range(part.start, part.stop)]


def reason_of(error: BaseException) -> str:
    """The report of a failure to a broker: its type and its text, as far as there is room."""
    return short_reason(f"{type(error).__name__}: {error}".removesuffix(": "))


def short_reason(text: str) -> str:
    """As much of the text as a broker accepts. Bytes that are no UTF-8 are replaced."""
    return text.encode("utf-8", "replace").decode()[:_MOST_REASON_CHARS]
