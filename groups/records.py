"""What is stored in `__groups`: a message is one record of one group, as JSON.

A record has a `type`, the time `at` (ms since the epoch, by the coordinator's clock), and the fields of its type. A
reader refuses what it does not know: it could not add that up.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import orjson

from filer.errors import CorruptFile

SEPARATOR = "/"
CHECKPOINT_KEY = "checkpoint"
"""The key of checkpoints, which belong to no group: it has no separator."""
AT_ONCE_MS = 1
"""Messages that rest until this time are handed out as soon as a record exposes them: they have been due for ever."""
UNNAMED = -1
"""Stands for the first offset of claims that are not known."""


class Acked(NamedTuple):
    """The messages `[start, stop)` of a segment were acked by that delivery."""

    segment: int
    start: int
    stop: int
    delivery: int


class Released(NamedTuple):
    """The consumer has given that delivery back, and it is over, or the messages are given up."""

    segment: int
    start: int
    stop: int
    delivery: int


class Ended(NamedTuple):
    """That delivery is over without an ack. The messages rest until `due_ms`.

    0: they may have been handed out again from here on. Coordinators of earlier versions have written that.
    """

    segment: int
    start: int
    stop: int
    delivery: int
    due_ms: int


class Rested(NamedTuple):
    """The messages were not handed out yet. They rest until `due_ms`."""

    segment: int
    start: int
    stop: int
    due_ms: int


class Exposed(NamedTuple):
    """The messages rest no more: they may have been handed out from here on."""

    segment: int
    start: int
    stop: int


class Untouched(NamedTuple):
    """A delivery of these messages is over before work on them began: it does not count for `max_deliveries`."""

    segment: int
    start: int
    stop: int


class Dying(NamedTuple):
    """Messages are given up after that many deliveries. Their dead letters have the sequences from `sequence` on."""

    segment: int
    start: int
    stop: int
    delivery: int
    sequence: int
    reason: str


class Done(NamedTuple):
    """The messages are never handed out again: their dead letters are stored, they have expired, or they are gone."""

    segment: int
    start: int
    stop: int


class Leased(NamedTuple):
    """The rest of a claim at a handover, and for how long it is still valid (negative if it has run out).

    `first` is the first offset of the claim as it was handed out: with the segment and the delivery, that names it. It
    is `UNNAMED` for messages that a coordinator before may have handed out by claims that are not known.
    """

    segment: int
    first: int
    delivery: int
    left_ms: int
    ranges: list[tuple[int, int]]


class Reached(NamedTuple):
    """The group begins at `start` in a segment; nothing from `horizon` on was ever handed out.

    That also holds for messages below it that rest by the same record. Coordinators of earlier versions have let only
    delayed messages rest.
    """

    segment: int
    start: int
    horizon: int


class Joined(NamedTuple):
    """A member starts, or starts again. `start` is greater than those of all starts before, of any member."""

    member: str
    start: int


class Gone(NamedTuple):
    """That start of a member is over: it has left, or was silent for a session."""

    member: str
    start: int


class Entered(NamedTuple):
    """The group enters that segment at `position`: all predecessors are drained."""

    segment: int
    position: int


class Given(NamedTuple):
    """That start of a member has the segment: it was given away for the `epoch`th time."""

    segment: int
    epoch: int
    member: str
    start: int


class Committed(NamedTuple):
    """The member that has the segment under that epoch is done with everything below `position`."""

    segment: int
    epoch: int
    position: int


class Source(NamedTuple):
    """Where the messages of a member's group are: in the topic group of that name with that first segment.

    The name alone would not distinguish it from a later topic group. Groups of other topics have no source: their
    messages are in the topic itself.
    """

    topic_group: str
    first_segment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The group begins, as another incarnation `id` of its name, with these settings."""

    at: int
    id: str
    settings: dict[str, Any]
    positions: list[tuple[int, int]] = field(default_factory=list)
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """The group has these settings from now on."""

    at: int
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The group begins anew at these positions, as another incarnation `id`: no claim from before counts any more."""

    at: int
    id: str
    positions: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The group is deleted."""

    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A coordinator has begun: the leases that the one before wrote down are no longer complete."""

    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Everything handed out that is not over. Its coordinator hands out nothing after this."""

    at: int
    leases: list[Leased]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The changes of a queue group's messages. All of them hold from the same moment."""

    at: int
    reached: list[Reached] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    """Recognises a repeated release. Other parts say what happens to the messages."""
    ended: list[Ended] = field(default_factory=list)
    untouched: list[Untouched] = field(default_factory=list)
    rested: list[Rested] = field(default_factory=list)
    exposed: list[Exposed] = field(default_factory=list)
    dying: list[Dying] = field(default_factory=list)
    dead: list[Done] = field(default_factory=list)
    expired: list[Done] = field(default_factory=list)
    skipped: list[Done] = field(default_factory=list)
    """Retention or a repair has removed them."""
    passed: list[Done] = field(default_factory=list)
    """They belong to other members of the topic group: the group never hands them out."""
    left: list[int] = field(default_factory=list)
    """Segments that are handed out to their end, and whose successors are entered."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no changes."""
        return not any(getattr(self, name) for name in PROGRESS_PARTS)

    def decided(self) -> Iterator[tuple[int, int, int]]:
        """The ranges that it decides about, as (segment, start, stop)."""
        for part in _DECIDED:
            for each in getattr(self, part):
                yield each[0], each[1], each[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The changes of a stream group's members, segments and positions. All of them hold from the same moment."""

    at: int
    joined: list[Joined] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    entered: list[Entered] = field(default_factory=list)
    skipped: list[Done] = field(default_factory=list)
    """Retention has removed them."""
    committed: list[Committed] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    """Segments that are drained and whose successors are entered, or that retention has removed."""
    given: list[Given] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether it has no changes."""
        return not any(getattr(self, name) for name in MEMBERSHIP_PARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriving:
    """Dead letters of that `topic` are published to the group's topic again, as the request `sequence`.

    `passed` letters are skipped from now on: they are of other groups, or were discarded.
    """

    at: int
    topic: str
    sequence: int
    letters: list[Done] = field(default_factory=list)
    passed: list[Done] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The dead letters of the last `Redriving` are published."""

    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The sum of all records before, as `to_plain` of the group's progress returns it."""

    at: int
    state: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The sum of all groups of the segment lies from these positions on, as (segment, offset)."""

    at: int
    positions: list[tuple[int, int]]


Record = (
    Created
    | Configured
    | Reset
    | Deleted
    | Taken
    | Leases
    | Progress
    | Membership
    | Redriving
    | Redriven
    | Snapshot
    | Checkpoint
)

PROGRESS_PARTS = {
    "reached": Reached,
    "acked": Acked,
    "released": Released,
    "ended": Ended,
    "untouched": Untouched,
    "rested": Rested,
    "exposed": Exposed,
    "dying": Dying,
    "dead": Done,
    "expired": Done,
    "skipped": Done,
    "passed": Done,
    "left": int,
}
MEMBERSHIP_PARTS = {
    "joined": Joined,
    "gone": Gone,
    "entered": Entered,
    "skipped": Done,
    "committed": Committed,
    "left": int,
    "given": Given,
}
_PARTS: dict[type[Any], dict[str, type[Any]]] = {
    Progress: PROGRESS_PARTS,
    Membership: MEMBERSHIP_PARTS,
    Redriving: {"letters": Done, "passed": Done},
}
_DECIDED = tuple(name for name in PROGRESS_PARTS if name not in ("reached", "left", "released", "untouched", "passed"))
_TYPES: dict[str, type[Any]] = {
    each.__name__.lower(): each
    for each in (
        Created,
        Configured,
        Reset,
        Deleted,
        Taken,
        Leases,
        Progress,
        Membership,
        Redriving,
        Redriven,
        Snapshot,
        Checkpoint,
    )
}


def source_to_plain(source: Source | None) -> dict[str, Source]:
    """The part of a snapshot that says where the group's messages are; empty if they are in the topic itself."""
    return {} if source is None else {"source": source}


def source_from_plain(plain: Mapping[str, Any]) -> Source | None:
    """From a snapshot."""
    return Source(*plain["source"]) if "source" in plain else None


def by_segment(ranges: Iterable[tuple[int, int, int]]) -> dict[int, list[tuple[int, int]]]:
    """Ranges (segment, start, stop) by segment."""
    found: dict[int, list[tuple[int, int]]] = {}
    for segment, start, stop in ranges:
        found.setdefault(segment, []).append((start, stop))
    return found


def key_of(topic: str, group: str) -> str:
    """The key of a group's records."""
    return f"{topic}{SEPARATOR}{group}"


def topic_and_group(key: str) -> tuple[str, str]:
    """The topic and the group of a record's key. Neither name has a slash."""
    topic, _, group = key.partition(SEPARATOR)
    return topic, group


def to_json(record: Record) -> bytes:
    """The record as the value of a message, without empty parts."""
    plain = {name: value for name, value in _plain(record).items() if value not in ([], None)}
    return orjson.dumps({"type": type(record).__name__.lower(), **plain}, default=tuple)


def _plain(record: Record) -> dict[str, Any]:
    if isinstance(record, Progress | Membership):
        return {"at": record.at, **{name: getattr(record, name) for name in _PARTS[type(record)]}}
    if isinstance(record, Leases):
        return {"at": record.at, "leases": record.leases}
    return asdict(record)


def from_json(value: bytes | str) -> Record:
    """The record of a message. Raises `CorruptFile` if no coordinator of this version has written it."""
    try:
        given = orjson.loads(value)
        kind = _TYPES[given.pop("type")]
        if kind in _PARTS:
            for name, part in _PARTS[kind].items():
                if part is not int and name in given:
                    given[name] = list(map(part._make, given[name]))
        elif kind is Leases:
            given["leases"] = [Leased(*each) for each in given.get("leases", ())]
        elif kind in (Created, Reset, Checkpoint):
            given["positions"] = [(segment, offset) for segment, offset in given.get("positions", ())]
            if "source" in given:
                given["source"] = Source(*given["source"])
        record: Record = kind(**given)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(f"this is no record of a consumer group: {value[:200]!r}") from error
    return record
