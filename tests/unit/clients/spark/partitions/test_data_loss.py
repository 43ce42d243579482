"""Positions whose messages retention has removed."""

from datetime import UTC, datetime

from braidmq.models import SegmentLife
from braidmq.spark.partitions.data_loss import has_lost_messages, repaired_positions
from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.slots import SLOTS
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState

WHOLE = (0, SLOTS)
LEFT, RIGHT = (0, SLOTS // 2), (SLOTS // 2, SLOTS)


def segment(
    number: int, slots: tuple[int, int], *, start: int = 0, end: int | None = None, **lineage: tuple[int, ...]
) -> Segment:
    state = {} if end is None else {"state": "sealed", "end_offset": end}
    return Segment(
        id=number,
        start_slot=slots[0],
        stop_slot=slots[1],
        brokers=("b",),
        opened_us=0,
        reason="create",
        start_offset=start,
        **state,
        **lineage,
    )


def snapshot(*segments: Segment, **ends: int) -> TopicSnapshot:
    state = TopicState(
        topic="t", created_us=0, version=1, next_segment=segments[-1].id + 1, config=TopicConfig(), segments=segments
    )
    return TopicSnapshot(state, {s.id: s.end_offset or 10 for s in segments})


def removed(number: int, slots: tuple[int, int], messages: int, **lineage: tuple[int, ...]) -> SegmentLife:
    return SegmentLife(
        segment=number,
        range=slots,
        state="removed",
        reason="split",
        opened=datetime(2026, 1, 1, tzinfo=UTC),
        messages=messages,
        **lineage,
    )


def test_positions_that_exist_stay() -> None:
    topic = snapshot(segment(0, WHOLE, end=5, successors=(1,)), segment(1, WHOLE, predecessors=(0,)))
    assert not has_lost_messages(topic, {0: 5})
    assert not has_lost_messages(topic, {1: 3})


def test_a_segment_that_this_broker_does_not_know_yet_is_no_loss() -> None:
    assert not has_lost_messages(snapshot(segment(0, WHOLE)), {1: 0})


def test_messages_at_the_front_have_expired() -> None:
    topic = snapshot(segment(0, WHOLE, start=4))
    assert has_lost_messages(topic, {0: 3})
    assert repaired_positions(topic, [], {0: 3}) == ({0: 4}, ["offsets 3 to 4 of segment 0 have expired"])


def test_a_segment_that_was_read_to_its_end_may_go() -> None:
    topic = snapshot(segment(1, LEFT, predecessors=(0,)), segment(2, RIGHT, predecessors=(0,)))
    lives = [removed(0, WHOLE, 7, successors=(1, 2))]
    assert has_lost_messages(topic, {0: 7})
    assert repaired_positions(topic, lives, {0: 7}) == ({1: 0, 2: 0}, [])


def test_a_segment_that_was_not_read_to_its_end_is_lost_from_there_on() -> None:
    topic = snapshot(segment(1, WHOLE, predecessors=(0,)))
    found, losses = repaired_positions(topic, [removed(0, WHOLE, 7, successors=(1,))], {0: 6})
    assert found == {1: 0}
    assert losses == ["offsets 6 to 7 of segment 0 have expired"]


def test_whole_generations_are_lost() -> None:
    """What was read already, by other positions, is not read again."""
    topic = snapshot(segment(3, LEFT, predecessors=(2,)), segment(4, RIGHT))
    lives = [removed(0, LEFT, 5, successors=(2,)), removed(2, LEFT, 8, predecessors=(0,), successors=(3,))]
    found, losses = repaired_positions(topic, lives, {0: 5, 4: 9})
    assert found == {3: 0, 4: 9}
    assert losses == ["segment 2 has been removed with its 8 messages"]


def test_a_segment_that_ended_before_what_was_read_of_it() -> None:
    topic = snapshot(segment(0, WHOLE, end=5, successors=(1,)), segment(1, WHOLE, predecessors=(0,)))
    assert repaired_positions(topic, [], {0: 6}) == ({1: 0}, ["segment 0 ends at 5, and had been read to 6"])


def test_a_topic_that_was_deleted_and_created_again() -> None:
    found, losses = repaired_positions(snapshot(segment(5, WHOLE)), [removed(0, WHOLE, 7)], {0: 7})
    assert found == {5: 0}
    assert losses == ["the topic has been deleted and created again"]
