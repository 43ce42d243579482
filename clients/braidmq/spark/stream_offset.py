"""What a streaming query keeps in its checkpoint, and how it goes on from there: pure functions.

A micro-batch reads, of each segment that it begins at, the messages `[start, stop)`; both are in the checkpoint when
it is planned, so that it has exactly the same messages again after a restart. A successor is among the segments that a
micro-batch begins at only when the position before it shows all of its predecessors drained: no micro-batch has a
message of a key together with one that another segment's predecessor holds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from braidmq.spark.errors import InvalidOption
from braidmq.spark.shape import Shape
from braidmq.spark.spans import Span
from filer.positions import Positions, advance

_VERSION = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The position behind a micro-batch, and `began` where that is not the position behind the one before it.

    The first micro-batch has it, for Spark writes down where a micro-batch ends and not where the first one begins;
    so has one that begins at successors, or behind messages that were lost. `initial` is the position of a query that
    has no micro-batch yet.
    """

    topic: str
    positions: Positions
    began: Positions | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """As Spark writes it into the checkpoint; equal offsets are equal texts."""
        members: dict[str, Any] = {"version": _VERSION, "topic": self.topic, "positions": _texts(self.positions)}
        if self.began is not None:
            members["began"] = _texts(self.began)
        if self.initial:
            members["initial"] = True
        return members

    @classmethod
    def from_json(cls, members: Mapping[str, Any], topic: str) -> Self:
        """Raises `InvalidOption` where the checkpoint is of another topic, or of a version not known here."""
        if members.get("version") != _VERSION:
            raise InvalidOption(
                f"the checkpoint was not written by this version of braidmq: {json.dumps(members):.200}"
            )
        if members.get("topic") != topic:
            raise InvalidOption(
                f"the checkpoint is of topic {members.get('topic')!r}, and the query reads {topic!r}: "
                f"give it a checkpointLocation of its own"
            )
        began = members.get("began")
        return cls(
            topic,
            _numbers(members["positions"]),
            None if began is None else _numbers(began),
            members.get("initial") is True,
        )


def next_offset(shape: Shape, start: StreamOffset, sound: Positions, *, most_rows: int | None) -> StreamOffset:
    """Where the micro-batch after `start` ends, with at most so many messages; `start` itself where nothing is new.

    `sound` are the positions of `start`, or those behind what of it was lost.
    """
    begin = advance(shape.state, sound)
    waiting = {segment: max(shape.ends.get(segment, 0) - offset, 0) for segment, offset in begin.items()}
    taken = share(waiting, most_rows)
    moved = begin != start.positions
    if not moved and not start.initial and not any(taken.values()):
        return start
    reached = {segment: offset + taken[segment] for segment, offset in begin.items()}
    return StreamOffset(start.topic, reached, begin if moved or start.initial else None)


def share(waiting: Mapping[int, int], most: int | None) -> dict[int, int]:
    """How many of the messages that wait in each segment are taken: all, or so many altogether.

    One of each, where there is room for that: what comes behind a segment waits for its last message. The rest are
    taken in proportion.
    """
    total = sum(waiting.values())
    if most is None or total <= most:
        return dict(waiting)
    some = sum(count > 0 for count in waiting.values())
    first = 1 if some <= most else 0
    left, room = total - first * some, most - first * some
    taken: dict[int, int] = {}
    seen = given = 0
    for segment in sorted(waiting):
        least = min(waiting[segment], first)
        seen += waiting[segment] - least
        taken[segment] = least + seen * room // left - given
        given += taken[segment] - least
    return taken


def micro_batch(start: StreamOffset, end: StreamOffset) -> list[Span]:
    """What the micro-batch between two offsets reads; nothing else decides it."""
    begin = start.positions if end.began is None else end.began
    if begin.keys() != end.positions.keys():
        raise InvalidOption(f"the checkpoint is damaged: {_texts(end.positions)} does not follow {_texts(begin)}")
    spans = [Span(segment, begin[segment], end.positions[segment]) for segment in sorted(begin)]
    return [span for span in spans if span.count > 0]


def _texts(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(segment): positions[segment] for segment in sorted(positions)}


def _numbers(members: Mapping[str, int]) -> Positions:
    return {int(segment): offset for segment, offset in members.items()}
