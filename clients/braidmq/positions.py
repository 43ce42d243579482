"""Positions of published messages, as brokers and producers acknowledge them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The position of one message: its segment, and its offset there (from 0, without gaps)."""

    segment: int
    offset: int

    def __str__(self) -> str:
        return f"{self.segment}-{self.offset}"


@dataclass(frozen=True, slots=True, order=True)
class PositionRange:
    """The `count` messages of one request that one segment holds, in order, from `offset` on."""

    segment: int
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Published:
    """The acknowledgements of a call that publishes many messages.

    The first `count` messages of the input are stored. `positions` lists their ranges, request by request. A request
    that failed in part may have added ranges beyond those `count` messages.
    """

    count: int = 0
    positions: tuple[PositionRange, ...] = ()

    def __add__(self, following: "Published") -> "Published":
        return Published(self.count + following.count, self.positions + following.positions)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The acknowledgement of one message of a producer's batch.

    `position` is the position of this message if it follows from the answer for certain, else None. The broker answers
    with one range for each segment, which does not always show the segment of a message without a key. `positions` are
    the ranges of the whole batch.
    """

    topic: str
    position: Position | None
    positions: tuple[PositionRange, ...]
