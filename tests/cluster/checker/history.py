"""The history of a workload: requests, readers and faults, with the times of one monotonic clock.

A history is plain data. It goes to a file as JSON and comes back as it was, so that a failed run can be judged
again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

Form = Literal["raw", "json", "ndjson", "arrow"]
Outcome = Literal["acknowledged", "failed", "unknown"]
Acks = Literal["stored", "replicated"]
ReaderKind = Literal["stream", "browse", "client", "final"]
Start = Literal["earliest", "latest"]
Position = tuple[int, int, int]
"""Segment, first offset and count, as an acknowledgement tells them."""

REACHED = "reached"
GARBLED = "garbled"


class NotAHistory(ValueError):
    """The file is not a history that this checker wrote."""


def _to_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def _to_bytes(text: object) -> object:
    return text.encode("latin-1") if isinstance(text, str) else text


# Readable as it stands where it is ASCII, and exact for any other bytes.
Text = Annotated[bytes | None, PlainSerializer(_to_text), BeforeValidator(_to_bytes)]


@dataclass(frozen=True, slots=True, order=True)
class Sent:
    """One message: the `number`-th that its producer sent for that key."""

    key: str
    number: int

    @property
    def value(self) -> bytes:
        """What is published; it names the message."""
        return f"{self.key} {self.number}".encode()


@dataclass(frozen=True, slots=True)
class Found:
    """One message that a reader got. Two are equal wherever and whenever they were read."""

    segment: int
    offset: int
    key: Text
    value: Text
    at_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to send a request, and its answer. `final`: repeating it cannot help."""

    url: str
    started_seconds: float
    ended_seconds: float
    outcome: Outcome
    positions: tuple[Position, ...] = ()
    final: bool = False
    detail: str = ""


@dataclass(slots=True)
class Request:
    """Messages sent in one request. With a `sequence` it was repeated until the outcome was known."""

    producer: str
    topic: str
    messages: tuple[Sent, ...]
    attempts: list[Attempt] = field(default_factory=list)
    sequence: int | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome; `failed` only if no attempt can have stored anything."""
        outcomes = {attempt.outcome for attempt in self.attempts}
        if "acknowledged" in outcomes:
            return "acknowledged"
        return "failed" if outcomes == {"failed"} else "unknown"

    @property
    def acknowledgements(self) -> list[Attempt]:
        """The attempts that were acknowledged, the first one first."""
        return [attempt for attempt in self.attempts if attempt.outcome == "acknowledged"]

    @property
    def positions(self) -> tuple[Position, ...]:
        """The positions in the first acknowledgement."""
        return next((attempt.positions for attempt in self.acknowledgements), ())


@dataclass(frozen=True, slots=True)
class Gap:
    """A broker's answer that the messages `[offset, next_offset)` of a segment cannot be given, because of `key`.

    Without `next_offset` nobody knows how far the damage reaches.
    """

    key: str
    segment: int
    offset: int
    next_offset: int | None = None

    def covers(self, segment: int, start: int, stop: int) -> bool:
        """Whether it explains that a reader was not given the messages `[start, stop)`."""
        return (
            self.segment == segment and self.offset <= start and (self.next_offset is None or stop <= self.next_offset)
        )


@dataclass(slots=True)
class Visit:
    """One connection of a stream, or one page: where it went, what it gave, and how it ended.

    `behind` says where it began: behind the marker of that many of the reader's messages, counted over all of its
    visits. `end` is `reached` where the broker said that there is nothing more. `told` are the gaps it was told of.
    """

    url: str
    behind: int
    started_seconds: float
    ended_seconds: float = 0.0
    found: list[Found] = field(default_factory=list)
    end: str = ""
    told: list[Gap] = field(default_factory=list)


@dataclass(slots=True)
class Reader:
    """One consumer. `positions` are where one that starts at the latest message began; `finished` means that it was
    given the time to read everything there is.
    """

    name: str
    topic: str
    kind: ReaderKind
    start: Start = "earliest"
    positions: dict[int, int] | None = None
    joined_seconds: float | None = None
    visits: list[Visit] = field(default_factory=list)
    finished: bool = False

    @property
    def found(self) -> Iterator[Found]:
        """All messages in the order in which they came, repeated ones too."""
        return (message for visit in self.visits for message in visit.found)

    @property
    def told(self) -> Iterator[Gap]:
        """All gaps that it was told of."""
        return (gap for visit in self.visits for gap in visit.told)


@dataclass(slots=True)
class Fault:
    """A deliberate fault, and when it happened.

    `key` is the object that was damaged, if that was the fault, and `logged` how many lines brokers wrote about it.
    """

    name: str
    started_seconds: float
    ended_seconds: float | None = None
    detail: str = ""
    key: str = ""
    logged: int = 0


@dataclass(slots=True)
class History:
    """Requests in the order in which they ended, readers with all they read, and the faults.

    Times count from `began`, which helps to find the lines in the brokers' logs. `predecessors` are those of each
    segment of a topic, as topic.json named them in the end, where that was looked up.
    """

    began: str = ""
    seed: int = 0
    requests: list[Request] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    predecessors: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """Every topic that was published to or read."""
        return sorted({request.topic for request in self.requests} | {reader.topic for reader in self.readers})

    def of(self, *outcomes: Outcome) -> Iterator[Sent]:
        """The messages of requests with this outcome."""
        return (sent for request in self.requests if request.outcome in outcomes for sent in request.messages)

    def count(self, outcome: Outcome) -> int:
        """How many messages have this outcome."""
        return sum(1 for _ in self.of(outcome))

    def to_json(self) -> bytes:
        """The whole history as JSON."""
        return _FORM.dump_json(self, indent=1)

    @classmethod
    def from_json(cls, data: bytes) -> "History":
        """Parse the result of `to_json`. Raises `ValueError` for anything else."""
        return _FORM.validate_json(data)

    def write(self, path: Path) -> None:
        """Write the history to a file."""
        path.write_bytes(self.to_json())

    @classmethod
    def read(cls, path: Path) -> "History":
        """Read a file of `write`. Raises `NotAHistory` for anything else."""
        try:
            return cls.from_json(path.read_bytes())
        except ValueError as error:
            raise NotAHistory(f"{path} is not a history of the checker: {error}") from error


_FORM = TypeAdapter(History)
