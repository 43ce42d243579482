"""Positions whose messages do not exist any more: how to detect them, and where to go on."""

from collections.abc import Iterable, Mapping

from braidmq.models import SegmentLife
from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.topic.positions import Positions, advance, passed_by
from filer.topic.topic_state import Segment, TopicState


def has_lost_messages(snapshot: TopicSnapshot, positions: Mapping[int, int]) -> bool:
    """Whether reading cannot simply go on from these positions. A segment newer than the snapshot does not count."""
    for segment_id, offset in positions.items():
        segment = snapshot.state.segment(segment_id)
        if segment is None and segment_id < snapshot.state.next_segment:
            return True
        if segment is not None and offset < segment.start_offset:
            return True
        if segment is not None and segment.end_offset is not None and offset > segment.end_offset:
            return True
    return False


def repaired_positions(
    snapshot: TopicSnapshot, history: Iterable[SegmentLife], positions: Mapping[int, int]
) -> tuple[Positions, list[str]]:
    """Return the first positions after these that can be read, and descriptions of what was lost in between.

    Nothing is lost if the removed segments had been read to their end.
    """
    whole = snapshot.with_removed(history)
    losses = _removed_unread(snapshot, whole, positions)
    found: Positions = {}
    for segment_id, offset in positions.items():
        segment = whole.segment(segment_id)
        # A segment that is not in the history either has just been opened, and this broker does not know it yet.
        found[segment_id] = offset if segment is None else _within(segment, offset, losses)
    advanced = advance(whole, found)
    gone = {segment.id for segment in whole.segments} - {segment.id for segment in snapshot.state.segments}
    kept = {segment: offset for segment, offset in advanced.items() if segment not in gone}
    if not kept:
        losses.append("the topic has been deleted and created again")
        return snapshot.earliest(), losses
    return kept, losses


def _within(segment: Segment, offset: int, losses: list[str]) -> int:
    """The nearest offset that the segment has; adds to `losses` what is lost."""
    if offset < segment.start_offset:
        losses.append(f"offsets {offset} to {segment.start_offset} of segment {segment.id} have expired")
        return segment.start_offset
    if segment.end_offset is not None and offset > segment.end_offset:
        losses.append(f"segment {segment.id} ends at {segment.end_offset}, and had been read to {offset}")
        return segment.end_offset
    return offset


def _removed_unread(snapshot: TopicSnapshot, whole: TopicState, positions: Mapping[int, int]) -> list[str]:
    """Descriptions of the segments after the positions that were removed with all their messages."""
    passed = passed_by(whole, positions)
    return [
        f"segment {segment.id} has been removed with its {segment.end_offset} messages"
        for segment in whole.segments
        if snapshot.state.segment(segment.id) is None
        and segment.end_offset
        and segment.id not in positions
        and segment.id > min(positions, default=0)
        and segment.id not in passed
    ]
