"""Positions that point to what is not there any more: finding out, and going on behind it."""

from collections.abc import Iterable, Mapping

from braidmq.models import SegmentLife
from braidmq.spark.shape import Shape
from filer.positions import Positions, advance, passed_by
from filer.topic_state import Segment, TopicState


def is_broken(shape: Shape, positions: Mapping[int, int]) -> bool:
    """Whether reading cannot simply go on from there. A segment that this shape does not know yet is no reason."""
    for segment_id, offset in positions.items():
        segment = shape.state.segment(segment_id)
        if segment is None and segment_id < shape.state.next_segment:
            return True
        if segment is not None and offset < segment.start_offset:
            return True
        if segment is not None and segment.end_offset is not None and offset > segment.end_offset:
            return True
    return False


def mended(shape: Shape, lives: Iterable[SegmentLife], positions: Mapping[int, int]) -> tuple[Positions, list[str]]:
    """The first positions behind those from which one can read on, and in words what was lost in between.

    Nothing is lost where the segments that are gone were read to their end before.
    """
    whole = shape.with_removed(lives)
    losses = _passed_over(shape, whole, positions)
    sound: Positions = {}
    for segment_id, offset in positions.items():
        segment = whole.segment(segment_id)
        # A segment that is not in the history either has just been opened: this broker has not heard of it.
        sound[segment_id] = offset if segment is None else _within(segment, offset, losses)
    moved = advance(whole, sound)
    gone = {segment.id for segment in whole.segments} - {segment.id for segment in shape.state.segments}
    found = {segment: offset for segment, offset in moved.items() if segment not in gone}
    if not found:
        losses.append("the topic has been deleted and created again")
        return shape.earliest(), losses
    return found, losses


def _within(segment: Segment, offset: int, losses: list[str]) -> int:
    """The nearest offset that the segment has."""
    if offset < segment.start_offset:
        losses.append(f"offsets {offset} to {segment.start_offset} of segment {segment.id} have expired")
        return segment.start_offset
    if segment.end_offset is not None and offset > segment.end_offset:
        losses.append(f"segment {segment.id} ends at {segment.end_offset}, and had been read to {offset}")
        return segment.end_offset
    return offset


def _passed_over(shape: Shape, whole: TopicState, positions: Mapping[int, int]) -> list[str]:
    """The segments after the positions that are gone with all their messages."""
    passed = passed_by(whole, positions)
    return [
        f"segment {segment.id} has been removed with its {segment.end_offset} messages"
        for segment in whole.segments
        if shape.state.segment(segment.id) is None
        and segment.end_offset
        and segment.id not in positions
        and segment.id > min(positions, default=0)
        and segment.id not in passed
    ]
