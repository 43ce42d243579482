"""Spans: ranges of offsets of one segment. Reads are cut into them."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.topic.positions import passed_by
from filer.topic.topic_state import Segment


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The messages `[start, stop)` of one segment."""

    segment: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.stop - self.start


def spans_between(snapshot: TopicSnapshot, start: Mapping[int, int], end: Mapping[int, int]) -> list[Span]:
    """Return all messages between two positions of a topic, also of segments opened and sealed in between."""
    spans = []
    passed_by_start, passed_by_end = passed_by(snapshot.state, start), passed_by(snapshot.state, end)
    for segment in snapshot.state.segments:
        first = _start_offset(segment, start, passed_by_start)
        stop = _stop_offset(snapshot, segment, end, passed_by_end)
        if first is not None and first < stop:
            spans.append(Span(segment.id, first, stop))
    return spans


def _start_offset(segment: Segment, start: Mapping[int, int], passed: Set[int]) -> int | None:
    """The first offset of a segment that is after the start; None if the whole segment is before it."""
    if segment.id in start:
        return max(start[segment.id], segment.start_offset)
    if segment.id < min(start, default=0) or segment.id in passed:
        return None
    return segment.start_offset


def _stop_offset(snapshot: TopicSnapshot, segment: Segment, end: Mapping[int, int], passed: Set[int]) -> int:
    """The offset at which the segment's messages before the end stop."""
    if segment.id in end:
        return min(end[segment.id], snapshot.ends[segment.id])
    return snapshot.ends[segment.id] if segment.id in passed else 0


def only_segments(spans: Iterable[Span], segments: Iterable[int]) -> list[Span]:
    """Return only the spans of these segments."""
    wanted = set(segments)
    return [span for span in spans if span.segment in wanted]


def split_spans(spans: Sequence[Span], parts: int) -> list[Span]:
    """Cut the spans into at least about `parts` spans of about equal size."""
    total = sum(span.count for span in spans)
    if parts <= len(spans) or not total:
        return list(spans)
    longest = max(total // parts, 1)
    return [piece for span in spans for piece in _pieces(span, longest)]


def _pieces(span: Span, longest: int) -> list[Span]:
    pieces = -(-span.count // longest)
    bounds = [span.start + span.count * each // pieces for each in range(pieces + 1)]
    return [Span(span.segment, bounds[each], bounds[each + 1]) for each in range(pieces)]
