"""Where a stream group goes on as segments are sealed, and as retention removes them."""

from collections.abc import Mapping
from typing import NamedTuple

from filer.topic.positions import advance, earliest, passed_by
from filer.topic.topic_state import TopicState
from groups.records import Done, Entered


class Advance(NamedTuple):
    """The segments that the group enters and leaves, and what is gone in those it stays in."""

    entered: list[Entered]
    left: list[int]
    skipped: list[Done]


def advance_of(state: TopicState, positions: Mapping[int, int]) -> Advance:
    """How a group goes on from its committed positions. A successor is entered when all predecessors are drained.

    A state that is older than the positions says nothing about them. Of a segment that retention has removed as a
    whole nobody knows any more where it ended, so nobody can count what was skipped.
    """
    if any(segment >= state.next_segment for segment in positions):
        return Advance([], [], [])
    kept, skipped = dict[int, int](), list[Done]()
    for segment_id, position in positions.items():
        if (segment := state.segment(segment_id)) is not None:
            kept[segment_id] = max(position, segment.start_offset)
            if position < segment.start_offset:
                skipped.append(Done(segment_id, position, segment.start_offset))
    if len(kept) < len(positions):
        behind = passed_by(state, kept)
        kept.update((each, start) for each, start in earliest(state).items() if each not in behind | kept.keys())
    reached = advance(state, kept)
    entered = [Entered(segment, position) for segment, position in reached.items() if segment not in positions]
    left = [segment for segment in positions if segment not in reached]
    return Advance(entered, left, skipped)
