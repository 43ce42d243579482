"""Where a group goes on, by a state of its topic that may be newer than its position, or older."""

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState
from groups.records import Done
from leader.transitions import new_topic
from mq.groups.message_feed import _pass_by_what_is_gone


def topic(*, start_offset: int = 0) -> TopicState:
    state = new_topic("t", TopicConfig(), 2, lambda *_: ("b",), now_us=1)
    first, *others = state.segments
    return state.model_copy(update={"segments": (first.model_copy(update={"start_offset": start_offset}), *others)})


def test_what_retention_has_removed_is_passed_by() -> None:
    passed = _pass_by_what_is_gone(topic(start_offset=10), {0: 3, 1: 5}, {})
    assert passed.positions == {0: 10, 1: 5} and passed.skipped == [Done(0, 3, 10)] and not passed.removed


def test_a_segment_that_is_gone_is_left_for_the_oldest_there_is() -> None:
    state = topic()
    gone = state.model_copy(update={"segments": state.segments[1:]})
    passed = _pass_by_what_is_gone(gone, {0: 3, 1: 5}, {})
    assert passed.removed == {0} and passed.positions == {1: 5}


def test_a_segment_that_this_broker_has_not_heard_of_is_not_gone() -> None:
    """The coordinator before knew a newer state. Left for ever, its messages would never be handed out."""
    passed = _pass_by_what_is_gone(topic(), {0: 3, 7: 5}, {})
    assert passed.positions == {0: 3, 7: 5} and not passed.removed and not passed.skipped
