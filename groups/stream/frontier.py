"""Where a stream group goes on when segments are sealed, and when retention removes them."""

from collections.abc import Mapping
from typing import NamedTuple

from filer.topic.positions import advance, earliest, passed_by
from filer.topic.topic_state import Segment, TopicState
from groups.records import Done, Entered
from groups.removed import removed_from


class Advance(NamedTuple):
    """The segments that the group enters and leaves, and the messages that are gone in those it stays in."""

    entered: list[Entered]
    left: list[int]
    skipped: list[Done]


def advance_of(state: TopicState, positions: Mapping[int, int], lives: Mapping[int, Segment] | None = None) -> Advance:
    """How a group goes on from its committed positions. A successor is entered when all predecessors are drained.

    A state that is older than the positions says nothing about them. `lives` are segments that retention has removed
    whole, as they were. The end of other segments is not known, so messages skipped in them are not counted.
    """
    if any(segment >= state.next_segment for segment in positions):
        return Advance([], [], [])
    skipped = removed_from(state, positions, lives or {})
    kept = {
        segment_id: max(position, segment.start_offset)
        for segment_id, position in positions.items()
        if (segment := state.segment(segment_id)) is not None
    }
    if len(kept) < len(positions):
        behind = passed_by(state, kept)
        kept.update((each, start) for each, start in earliest(state).items() if each not in behind | kept.keys())
    reached = advance(state, kept)
    starts = {each.segment: each.start for each in skipped}
    entered = [
        Entered(segment, starts.pop(segment, position))
        for segment, position in reached.items()
        if segment not in positions
    ]
    # The group enters and leaves a segment that it never came to at once, so that its messages count as skipped.
    gone = [segment for segment in starts if segment not in positions and segment not in reached]
    entered += [Entered(segment, starts[segment]) for segment in gone if state.segment(segment) is None]
    left = [segment for segment in positions if segment not in reached]
    left += [segment for segment in gone if state.segment(segment) is None]
    known = positions.keys() | {each.segment for each in entered}
    return Advance(entered, left, [each for each in skipped if each.segment in known])
