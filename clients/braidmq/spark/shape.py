"""A topic as it stood at one moment, in the terms that positions are reckoned in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from braidmq.models import Segment, SegmentLife, Topic
from filer.positions import Positions, advance, earliest
from filer.topic_config import TopicConfig
from filer.topic_state import Segment as StateSegment
from filer.topic_state import TopicState


@dataclass(frozen=True, slots=True)
class Shape:
    """The lineage of a topic's segments, and `ends`: the offset after each one's last message then."""

    state: TopicState
    ends: Mapping[int, int]

    @classmethod
    def of(cls, topic: Topic) -> Self:
        """From what a broker answered."""
        state = TopicState(
            topic=topic.topic,
            created_us=0,
            version=topic.version,
            # Of those that were opened since, this answer knows nothing: they are in the next one.
            next_segment=max((each.segment for each in topic.segments), default=-1) + 1,
            config=TopicConfig(key_type=topic.config["key_type"], value_type=topic.config["value_type"]),
            segments=tuple(_segment(each) for each in topic.segments),
        )
        return cls(state, {each.segment: each.end_offset or 0 for each in topic.segments})

    def earliest(self) -> Positions:
        """Positions of the oldest messages kept."""
        return advance(self.state, earliest(self.state))

    def latest(self) -> Positions:
        """Positions behind the newest messages."""
        return {segment.id: self.ends[segment.id] for segment in self.state.open_segments}

    def with_removed(self, lives: Iterable[SegmentLife]) -> TopicState:
        """The lineage with the segments that retention has taken: sealed, and nothing left in them."""
        present = {segment.id for segment in self.state.segments}
        removed = (_removed(life) for life in lives if life.state == "removed" and life.segment not in present)
        segments = sorted((*removed, *self.state.segments), key=lambda segment: segment.id)
        return self.state.model_copy(update={"segments": tuple(segments)})


def _segment(told: Segment) -> StateSegment:
    return StateSegment(
        id=told.segment,
        start_slot=told.range[0],
        stop_slot=told.range[1],
        brokers=told.brokers,
        opened_us=0,
        reason="create",
        predecessors=told.predecessors,
        successors=told.successors,
        state=told.state,
        start_offset=told.start_offset,
        end_offset=told.end_offset if told.state == "sealed" else None,
    )


def _removed(life: SegmentLife) -> StateSegment:
    return StateSegment(
        id=life.segment,
        start_slot=life.range[0],
        stop_slot=life.range[1],
        brokers=(),
        opened_us=0,
        reason="create",
        predecessors=life.predecessors,
        successors=life.successors,
        state="sealed",
        start_offset=life.messages,
        end_offset=life.messages,
    )
