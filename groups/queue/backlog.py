"""A look at the messages of a queue group that are not done, without a claim on them."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from groups.offset_set import OffsetSet
from groups.queue.claims import QueueClaims

State = Literal["backlog", "in_flight"]


class Seen(NamedTuple):
    """The messages `[start, stop)` of a segment, and how often they were delivered at least.

    In flight, `left_ms` is how long their lease still runs. In the backlog, `due_ms` is the time until which they rest;
    None if they do not rest.
    """

    segment: int
    start: int
    stop: int
    deliveries: int
    left_ms: int | None = None
    due_ms: int | None = None


def in_flight(claims: QueueClaims, now_ms: int) -> list[Seen]:
    """Messages with a running lease, by segment and offset: as many as `QueueClaims.running` counts."""
    return sorted(
        Seen(leased.segment, start, stop, leased.delivery, left_ms=leased.left_ms)
        for leased in claims.written_down(now_ms)
        if leased.left_ms > 0
        for start, stop in leased.ranges
    )


def backlog(claims: QueueClaims, now_ms: int) -> list[Seen]:
    """Messages that were looked at and wait for a claim, by segment and offset. Those beyond wait as well."""
    with_consumers: dict[int, OffsetSet] = {}
    for each in in_flight(claims, now_ms):
        with_consumers.setdefault(each.segment, OffsetSet()).add(each.start, each.stop)
    return sorted(_waiting(claims, with_consumers))


def _waiting(claims: QueueClaims, with_consumers: dict[int, OffsetSet]) -> Iterator[Seen]:
    for segment, progress in claims.progress.segments.items():
        left = progress.unfinished()
        taken = with_consumers.get(segment, OffsetSet())
        for start, stop in (*taken.ranges(), *progress.dying.ranges()):
            left.remove(start, stop)
        for due_ms in progress.dues():
            for start, stop in progress.due_at(due_ms):
                for first, behind in left.within(start, stop):
                    for piece in progress.pieces_by_delivery(first, behind):
                        yield Seen(segment, *piece, due_ms=due_ms)
                left.remove(start, stop)
        for start, stop in left.ranges():
            for piece in progress.pieces_by_delivery(start, stop):
                yield Seen(segment, *piece)
