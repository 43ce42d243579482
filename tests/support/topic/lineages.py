"""Random topics for property tests: segments that rolled, split and merged over several generations."""

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st

from filer.slots import SLOTS, equal_ranges
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState


@dataclass
class Lineage:
    """A topic under construction: `opened` by slots, and everything that was sealed."""

    segments: dict[int, Segment] = field(default_factory=dict)

    @property
    def open(self) -> list[Segment]:
        return sorted((s for s in self.segments.values() if s.state == "open"), key=lambda s: s.start_slot)

    def add(self, start: int, stop: int, predecessors: tuple[int, ...] = ()) -> int:
        new = len(self.segments)
        self.segments[new] = Segment(
            id=new,
            start_slot=start,
            stop_slot=stop,
            brokers=("b",),
            opened_us=0,
            reason="create",
            predecessors=predecessors,
        )
        return new

    def seal(self, segment_id: int, end_offset: int, successors: tuple[int, ...]) -> None:
        update = {"state": "sealed", "end_offset": end_offset, "sealed_us": 0, "successors": successors}
        self.segments[segment_id] = self.segments[segment_id].model_copy(update=update)

    def split(self, segment: Segment, cuts: list[int], end_offset: int) -> None:
        self.cut_anew([segment], cuts, [end_offset])

    def merge(self, segments: list[Segment], ends: list[int]) -> None:
        self.cut_anew(segments, [], ends)

    def cut_anew(self, segments: list[Segment], cuts: list[int], ends: list[int]) -> None:
        """Replace segments as a bulk load does: each successor follows all segments that share a slot with it."""
        heirs: dict[int, list[int]] = {segment.id: [] for segment in segments}
        for start, stop in pairwise([segments[0].start_slot, *cuts, segments[-1].stop_slot]):
            before = tuple(s.id for s in segments if s.start_slot < stop and start < s.stop_slot)
            new = self.add(start, stop, before)
            for each in before:
                heirs[each].append(new)
        for segment, end in zip(segments, ends, strict=True):
            self.seal(segment.id, end, tuple(heirs[segment.id]))

    def state(self) -> TopicState:
        return TopicState(
            topic="t",
            created_us=0,
            version=1,
            next_segment=len(self.segments),
            config=TopicConfig(),
            segments=tuple(self.segments.values()),
        )


@st.composite
def lineages(draw: st.DrawFn, *, most_transitions: int = 8) -> TopicState:
    """A topic that began with one to four segments, after some transitions. Sealed segments have 0 to 3 messages."""
    lineage = Lineage()
    for start, stop in equal_ranges(draw(st.integers(1, 4))):
        lineage.add(start, stop)
    ends = st.integers(0, 3)
    for _ in range(draw(st.integers(0, most_transitions))):
        opened = lineage.open
        index = draw(st.integers(0, len(opened) - 1))
        count = draw(st.integers(1, 3))
        together = opened[index : index + (count if index + count <= len(opened) else 1)]
        start, stop = together[0].start_slot, together[-1].stop_slot
        cuts = sorted(draw(st.sets(st.integers(start + 1, stop - 1), max_size=3))) if stop - start > 8 else []
        lineage.cut_anew(together, draw(st.sampled_from([[], cuts])), [draw(ends) for _ in together])
    assert lineage.open[-1].stop_slot == SLOTS
    return lineage.state()
