"""Spans: what one task reads, and cutting a part of a topic into them."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from braidmq.spark.shape import Shape
from filer.positions import passed_by
from filer.topic_state import Segment


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The messages `[start, stop)` of one segment."""

    segment: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        """How many messages that is."""
        return self.stop - self.start


def spans_between(shape: Shape, start: Mapping[int, int], end: Mapping[int, int]) -> list[Span]:
    """All that lies between two positions of a topic, by segment: also of those opened and sealed in between."""
    spans = []
    before, within = passed_by(shape.state, start), passed_by(shape.state, end)
    for segment in shape.state.segments:
        first, last = _first(segment, start, before), _last(shape, segment, end, within)
        if first is not None and first < last:
            spans.append(Span(segment.id, first, last))
    return spans


def _first(segment: Segment, start: Mapping[int, int], passed: Set[int]) -> int | None:
    """The offset from which a segment comes after the start; None where it lies before it altogether."""
    if segment.id in start:
        return max(start[segment.id], segment.start_offset)
    if segment.id < min(start, default=0) or segment.id in passed:
        return None
    return segment.start_offset


def _last(shape: Shape, segment: Segment, end: Mapping[int, int], passed: Set[int]) -> int:
    """The offset up to which a segment comes before the end."""
    if segment.id in end:
        return min(end[segment.id], shape.ends[segment.id])
    return shape.ends[segment.id] if segment.id in passed else 0


def of_segments(spans: Iterable[Span], segments: Iterable[int]) -> list[Span]:
    """Only those of some segments."""
    wanted = set(segments)
    return [span for span in spans if span.segment in wanted]


def in_parts(spans: Sequence[Span], parts: int) -> list[Span]:
    """The spans cut so that there are about so many at least, all of about equal size."""
    total = sum(span.count for span in spans)
    if parts <= len(spans) or not total:
        return list(spans)
    longest = max(total // parts, 1)
    return [piece for span in spans for piece in _pieces(span, longest)]


def _pieces(span: Span, longest: int) -> list[Span]:
    pieces = -(-span.count // longest)
    bounds = [span.start + span.count * each // pieces for each in range(pieces + 1)]
    return [Span(span.segment, bounds[each], bounds[each + 1]) for each in range(pieces)]
