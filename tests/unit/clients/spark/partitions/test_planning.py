"""What a batch reads of a topic, by segment."""

from unittest.mock import Mock

import pytest

from braidmq import Client
from braidmq.spark.errors import InvalidOption
from braidmq.spark.options import ReadOptions, Source
from braidmq.spark.partitions.planning import spans_to_read
from braidmq.spark.spans import Span
from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.slots import SLOTS
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState


def segment(number: int, *slots: int) -> Segment:
    return Segment(id=number, start_slot=slots[0], stop_slot=slots[1], brokers=("b",), opened_us=0, reason="create")


# Segments 0 and 1 were removed with all their messages.
STATE = TopicState(
    topic="t",
    created_us=0,
    version=1,
    next_segment=20001,
    config=TopicConfig(),
    segments=(segment(2, 0, SLOTS // 2), segment(3, SLOTS // 2, SLOTS), segment(20000, 0, SLOTS)),
)
SHAPE = TopicSnapshot(STATE, {2: 10, 3: 20, 20000: 0})


def spans_of(*segments: int) -> list[Span]:
    client = Mock(spec=Client)
    client.history.return_value = [Mock(segment=number) for number in (0, 1, 2, 3, 20000)]
    return spans_to_read(client, SHAPE, ReadOptions(Source("http://b", "t"), segments=segments))


def test_segments_that_are_asked_for() -> None:
    assert spans_of(3) == [Span(3, 0, 20)]
    assert spans_of(1, 3, 2) == [Span(2, 0, 10), Span(3, 0, 20)]


def test_segments_that_never_were_are_refused() -> None:
    with pytest.raises(InvalidOption, match="topic 't' has no segment 20001, and never had; the newest one is 20000"):
        spans_of(3, 20001)


def test_an_id_in_the_gap_below_a_bulk_load_is_refused_too() -> None:
    with pytest.raises(InvalidOption, match="topic 't' has no segment 9999, and never had"):
        spans_of(3, 9999)
