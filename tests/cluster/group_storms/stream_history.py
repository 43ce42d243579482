"""What publishers and members of a stream group have seen. Times are seconds of a monotonic clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tests.cluster.group_storms.common_history import Fault, Published


class Start(NamedTuple):
    """A start of a member, by its number."""

    member: str
    number: int


class Tenure(NamedTuple):
    """A segment under an epoch."""

    segment: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Given:
    """A member was told that it has a segment, from `position` on."""

    start: Start
    tenure: Tenure
    position: int
    at: float


@dataclass(frozen=True, slots=True)
class AskedBack:
    """A member was told to let a segment go."""

    start: Start
    tenure: Tenure
    at: float


@dataclass(frozen=True, slots=True)
class Read:
    """The messages `[first, first + len(values))` of a segment, which a member read while it had it."""

    start: Start
    tenure: Tenure
    first: int
    values: tuple[str, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit. `held` is None if nobody has told what became of it."""

    start: Start
    tenure: Tenure
    position: int
    sent_at: float
    answered_at: float
    held: bool | None


@dataclass(frozen=True, slots=True)
class Described:
    """What a broker says of the group: the position in each segment."""

    positions: Mapping[int, int]
    asked_at: float
    at: float


ChangeName = Literal["join", "leave", "kill", "restart", "pause", "cut"]


@dataclass(frozen=True, slots=True)
class Change:
    """A member has joined or left, or something was done to it. `start` is what it was before, or is by a join."""

    name: ChangeName
    start: Start
    began_at: float
    ended_at: float


@dataclass(slots=True)
class StreamHistory:
    """All of it, in the order in which it was written down."""

    published: list[Published] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    asked_back: list[AskedBack] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    described: list[Described] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    wrong_answers: list[str] = field(default_factory=list)
