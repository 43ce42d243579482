"""Where published messages went: what the broker answers, and what a producer learns from it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The place of one message: an offset (from 0, without gaps) in a segment of its topic."""

    segment: int
    offset: int

    def __str__(self) -> str:
        return f"{self.segment}-{self.offset}"


@dataclass(frozen=True, slots=True, order=True)
class PositionRange:
    """The `count` messages of one request that went into one segment, from `offset` on, in their order."""

    segment: int
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Published:
    """What a call that publishes many messages got acknowledged.

    The first `count` messages of the input are stored. `positions` lists, request by request, the ranges
    they took; a request that failed half-way may have left ranges beyond those `count` messages.
    """

    count: int = 0
    positions: tuple[PositionRange, ...] = ()

    def __add__(self, following: "Published") -> "Published":
        return Published(self.count + following.count, self.positions + following.positions)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The answer to one message of a producer's batch.

    `position` is this message's own place where it follows from the answer without doubt, else None: the
    broker answers one range per segment, and which of several segments a message without a key fell into
    cannot always be told. `positions` are the ranges of the whole batch.
    """

    topic: str
    position: Position | None
    positions: tuple[PositionRange, ...]
