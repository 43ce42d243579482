"""The messages that retention has removed before a group came to them."""

from collections.abc import Mapping

from filer.topic.topic_state import Segment, TopicState
from groups.records import Done


def removed_from(state: TopicState, positions: Mapping[int, int], lives: Mapping[int, Segment]) -> list[Done]:
    """The messages from these positions on that are not there any more.

    `lives` are segments that topic.json no longer has, as they were. The end of a segment that is not among them is not
    known. Successors that the group never came to count too, unless what follows them is among the positions: then they
    were drained.
    """
    found: list[Done] = []
    waiting: list[tuple[int, int]] = []
    seen = set(positions)
    for segment_id, offset in positions.items():
        segment = state.segment(segment_id)
        if segment is None:
            waiting.append((segment_id, offset))
        elif offset < segment.start_offset:
            found.append(Done(segment_id, offset, segment.start_offset))
    while waiting:
        segment_id, offset = waiting.pop()
        life = lives.get(segment_id)
        if life is None:
            continue
        if life.end_offset is not None and offset < life.end_offset:
            found.append(Done(segment_id, offset, life.end_offset))
        for successor in life.successors:
            if successor in seen:
                continue
            seen.add(successor)
            segment = state.segment(successor)
            after = lives.get(successor) if segment is None else segment
            if after is not None and any(each in positions for each in after.successors):
                continue
            if segment is None:
                waiting.append((successor, 0))
            elif segment.start_offset:
                found.append(Done(successor, 0, segment.start_offset))
    return found
