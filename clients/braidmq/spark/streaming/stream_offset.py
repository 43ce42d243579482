"""A streaming query's entry in its checkpoint, and how the query goes on from there, in pure functions.

A micro-batch reads the messages `[start, stop)` of each of its segments. Both offsets are in the checkpoint when the
micro-batch is planned, so it has exactly the same messages again after a restart. A micro-batch includes a successor
only if the position before it shows that all predecessors were read to their end. So a micro-batch never has messages
of a segment together with messages of one of its predecessors, and each key stays in order.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from braidmq.spark.errors import InvalidOption
from braidmq.spark.spans import Span
from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.topic.positions import Positions, advance

_VERSION = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The position after a micro-batch, and `began` if the micro-batch does not begin after the one before it.

    The first micro-batch has `began`, because Spark stores where a micro-batch ends but not where the first one begins.
    So does one that begins at successors, or after messages that were lost. `initial` marks the position of a query
    without a micro-batch.
    """

    topic: str
    positions: Positions
    began: Positions | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark writes into the checkpoint. Equal offsets have equal texts."""
        members: dict[str, Any] = {"version": _VERSION, "topic": self.topic, "positions": _texts(self.positions)}
        if self.began is not None:
            members["began"] = _texts(self.began)
        if self.initial:
            members["initial"] = True
        return members

    @classmethod
    def from_json(cls, members: Mapping[str, Any], topic: str) -> Self:
        """Read the checkpoint's form. Raises `InvalidOption` if it is of another topic, or of an unknown version."""
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


def next_offset(
    snapshot: TopicSnapshot, start: StreamOffset, readable: Positions, *, most_rows: int | None
) -> StreamOffset:
    """Return where the micro-batch after `start` ends, with at most `most_rows` messages; `start` if nothing is new.

    `readable` are the positions of `start`, or those after messages that were lost.
    """
    begin = advance(snapshot.state, readable)
    waiting = {segment: max(snapshot.ends.get(segment, 0) - offset, 0) for segment, offset in begin.items()}
    taken = share(waiting, most_rows)
    moved = begin != start.positions
    if not moved and not start.initial and not any(taken.values()):
        return start
    reached = {segment: offset + taken[segment] for segment, offset in begin.items()}
    return StreamOffset(start.topic, reached, begin if moved or start.initial else None)


def share(waiting: Mapping[int, int], most: int | None) -> dict[int, int]:
    """Return how many of the waiting messages of each segment to take: all of them, or `most` in total.

    If possible, take at least one of each segment, because successors wait for the last message. The rest is taken in
    proportion.
    """
    total = sum(waiting.values())
    if most is None or total <= most:
        return dict(waiting)
    segments = sum(count > 0 for count in waiting.values())
    minimum = 1 if segments <= most else 0
    rest, room = total - minimum * segments, most - minimum * segments
    taken: dict[int, int] = {}
    rest_so_far = given = 0
    for segment in sorted(waiting):
        least = min(waiting[segment], minimum)
        rest_so_far += waiting[segment] - least
        taken[segment] = least + rest_so_far * room // rest - given
        given += taken[segment] - least
    return taken


def micro_batch(start: StreamOffset, end: StreamOffset) -> list[Span]:
    """Return the spans that the micro-batch between two offsets reads. Only the two offsets decide it."""
    begin = start.positions if end.began is None else end.began
    if begin.keys() != end.positions.keys():
        raise InvalidOption(f"the checkpoint is damaged: {_texts(end.positions)} does not follow {_texts(begin)}")
    spans = [Span(segment, begin[segment], end.positions[segment]) for segment in sorted(begin)]
    return [span for span in spans if span.count > 0]


def _texts(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(segment): positions[segment] for segment in sorted(positions)}


def _numbers(members: Mapping[str, int]) -> Positions:
    return {int(segment): offset for segment, offset in members.items()}
