"""What is stored in `__groups`: a message is one record of one group, as JSON.

A record has a `type`, the time `at` (ms since the epoch, by the coordinator's clock), and what the type tells besides.
A reader refuses what it does not know: it could not add up what that says.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import orjson

from filer.errors import CorruptFile

SEPARATOR = "/"
CHECKPOINT_KEY = "checkpoint"
"""The key of checkpoints, which are about no group: it has no separator."""
AT_ONCE_MS = 1
"""What rests until this time is handed out as soon as a record tells that it is exposed: it has been due for ever."""
UNNAMED = -1
"""Stands for the first offset of claims that are not known."""


class Acked(NamedTuple):
    """The messages `[start, stop)` of a segment were acked by that delivery."""

    segment: int
    start: int
    stop: int
    delivery: int


class Released(NamedTuple):
    """That delivery was given back by whoever had it, and is over, or the messages are given up."""

    segment: int
    start: int
    stop: int
    delivery: int


class Ended(NamedTuple):
    """That delivery is over without an ack. They rest until `due_ms`.

    0: they may have been handed out again from here on. Coordinators of earlier versions have written that.
    """

    segment: int
    start: int
    stop: int
    delivery: int
    due_ms: int


class Rested(NamedTuple):
    """They were not handed out yet. They rest until `due_ms`."""

    segment: int
    start: int
    stop: int
    due_ms: int


class Exposed(NamedTuple):
    """They rest no more: they may have been handed out from here on."""

    segment: int
    start: int
    stop: int


class Untouched(NamedTuple):
    """A delivery of theirs is over on which nobody had begun to work: it does not count for `max_deliveries`."""

    segment: int
    start: int
    stop: int


class Dying(NamedTuple):
    """They are given up after that many deliveries. Their dead letters have the sequences from `sequence` on."""

    segment: int
    start: int
    stop: int
    delivery: int
    sequence: int
    reason: str


class Done(NamedTuple):
    """They are never handed out again: their dead letters are stored, they have expired, or they are gone."""

    segment: int
    start: int
    stop: int


class Leased(NamedTuple):
    """What is left of a claim at a handover, and for how long it is still valid (negative if it has run out).

    `first` is the first offset of the claim as it was handed out: with the segment and the delivery, that names it. It
    is `UNNAMED` for what a coordinator before may have handed out, by claims of which nobody knows.
    """

    segment: int
    first: int
    delivery: int
    left_ms: int
    ranges: list[tuple[int, int]]


class Reached(NamedTuple):
    """The group begins at `start` in a segment; nothing from `horizon` on was ever handed out.

    Of what lies below it, that holds for all that rests by the same record. Coordinators of earlier versions have let
    nothing rest but what was delayed.
    """

    segment: int
    start: int
    horizon: int


class Joined(NamedTuple):
    """A member starts, or starts again. `start` is greater than those of all starts before, of any member."""

    member: str
    start: int


class Gone(NamedTuple):
    """That start of a member is over: it has left, or has not been heard for a session."""

    member: str
    start: int


class Entered(NamedTuple):
    """The group goes on in that segment, at `position`: all predecessors are drained."""

    segment: int
    position: int


class Given(NamedTuple):
    """The segment is with that start of a member: it was given away for the `epoch`th time."""

    segment: int
    epoch: int
    member: str
    start: int


class Committed(NamedTuple):
    """Whoever has the segment under that epoch is done with all that lies below `position`."""

    segment: int
    epoch: int
    position: int


class Source(NamedTuple):
    """Where the messages of a group of a member are: among those of that topic group, the one with that first segment.

    Its name alone would not tell it from a later one. Groups of other topics have none: theirs are in the topic itself.
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
    """There is no such group any more."""

    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A coordinator has begun: leases that the one before wrote down are not all there is any more."""

    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Everything handed out that is not over. Its coordinator hands out nothing after this."""

    at: int
    leases: list[Leased]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What has become of messages: a queue group's news, all of which holds from the same moment."""

    at: int
    reached: list[Reached] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    """A repeated release is known by it. What becomes of the messages, other parts tell."""
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
    """They are of other members of the topic group: the group never hands them out."""
    left: list[int] = field(default_factory=list)
    """Segments that are handed out to their end, and whose successors are entered."""

    @property
    def is_empty(self) -> bool:
        """Whether it tells nothing."""
        return not any(getattr(self, name) for name in PROGRESS_PARTS)

    def decided(self) -> Iterator[tuple[int, int, int]]:
        """The ranges of which it tells what became of them, as (segment, start, stop)."""
        for part in _DECIDED:
            for each in getattr(self, part):
                yield each[0], each[1], each[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What has become of members, segments and positions: a stream group's news, which holds from the same moment."""

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
        """Whether it tells nothing."""
        return not any(getattr(self, name) for name in MEMBERSHIP_PARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriving:
    """Dead letters of that `topic` are published to the group's topic again, as the request `sequence`.

    Those that are `passed` are looked at no more: they are of other groups, or were discarded.
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
    """Everything that the records before add up to, as `to_plain` of the group's progress gives it."""

    at: int
    state: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What all groups of the segment add up to lies from these positions on, as (segment, offset)."""

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
    """What a snapshot tells of where the group's messages are; nothing if they are in the topic itself."""
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
    """The record as the value of a message, without what is empty."""
    plain = {name: value for name, value in _plain(record).items() if value not in ([], None)}
    return orjson.dumps({"type": type(record).__name__.lower(), **plain}, default=tuple)


def _plain(record: Record) -> dict[str, Any]:
    if isinstance(record, Progress | Membership):
        return {"at": record.at, **{name: getattr(record, name) for name in _PARTS[type(record)]}}
    if isinstance(record, Leases):
        return {"at": record.at, "leases": record.leases}
    return asdict(record)


def from_json(value: bytes | str) -> Record:
    """The record of a message. Raises `CorruptFile` for what no coordinator of this version has written."""
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
