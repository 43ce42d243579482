"""A topic as it was at one moment: everything that computing with positions needs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from braidmq.errors import DataDamaged, Problem
from braidmq.models import LostObject, Segment, SegmentLife, Topic
from filer.format.schema import OF_BYTES, MessageSchema
from filer.topic.positions import Positions, advance, earliest
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment as StateSegment
from filer.topic.topic_state import TopicState


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """The lineage of a topic's segments, and in `ends` the offset after the last message of each at that moment.

    `damaged_ends` are the damaged last files of segments: nothing shows how many messages they have.
    """

    state: TopicState
    ends: Mapping[int, int]
    damaged_ends: Mapping[int, LostObject] = field(default_factory=dict)
    schema: MessageSchema = OF_BYTES

    @classmethod
    def of(cls, topic: Topic) -> Self:
        """From a broker's answer."""
        config = TopicConfig(key_type=topic.config["key_type"], value_type=topic.config["value_type"])
        state = TopicState(
            topic=topic.topic,
            created_us=0,
            version=topic.version,
            # Segments that are opened later are in a later snapshot.
            next_segment=max((each.segment for each in topic.segments), default=-1) + 1,
            config=config,
            segments=tuple(_segment(each) for each in topic.segments),
        )
        ends = {each.segment: each.end_offset or 0 for each in topic.segments}
        damaged_ends = {
            each.segment: each
            for each in topic.damaged
            if each.segment is not None and each.offset is not None and each.next_offset is None
        }
        schema = MessageSchema.of(config.key_type, config.value_type, grouped=topic.group is not None)
        return cls(state, ends, damaged_ends, schema)

    def earliest(self) -> Positions:
        """Return the positions of the oldest messages that are kept."""
        return advance(self.state, earliest(self.state))

    def latest(self) -> Positions:
        """Return the positions after the newest messages. Raises `DataDamaged` if they are not known."""
        for segment in self.state.open_segments:
            if (lost := self.damaged_ends.get(segment.id)) is not None:
                raise _unknown_end(self.state.topic, segment.id, lost)
        return {segment.id: self.ends[segment.id] for segment in self.state.open_segments}

    def with_removed(self, lives: Iterable[SegmentLife]) -> TopicState:
        """Return the lineage with the segments that retention has removed added: sealed and empty."""
        present = {segment.id for segment in self.state.segments}
        removed = (_removed(life) for life in lives if life.state == "removed" and life.segment not in present)
        segments = sorted((*removed, *self.state.segments), key=lambda segment: segment.id)
        return self.state.model_copy(update={"segments": tuple(segments)})


def _unknown_end(topic: str, segment: int, lost: LostObject) -> DataDamaged:
    """The error for a reader of an end that is not known, as a broker would report it."""
    why = (
        f"{lost.key} is damaged, and it is the last file of segment {segment} of topic {topic!r}: nobody knows how "
        "many messages it has. Put it back, or give it up with mq topic repair; to read what is before it, end segment "
        f"{segment} at offset {lost.offset}"
    )
    extras = {"key": lost.key, "segment": segment, "offset": lost.offset}
    return DataDamaged(
        why, problem=Problem("data-damaged", "An object on the store is damaged", 503, why, False, extras)
    )


def _segment(answer: Segment) -> StateSegment:
    return StateSegment(
        id=answer.segment,
        start_slot=answer.range[0],
        stop_slot=answer.range[1],
        brokers=answer.brokers,
        opened_us=0,
        reason="create",
        predecessors=answer.predecessors,
        successors=answer.successors,
        state=answer.state,
        start_offset=answer.start_offset,
        end_offset=answer.end_offset if answer.state == "sealed" else None,
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
