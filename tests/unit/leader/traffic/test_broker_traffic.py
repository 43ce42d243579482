"""What brokers carry, and what segments weigh of which nothing is known."""

import pytest

from filer.topic.topic_config import Target, TopicConfig
from filer.topic.topic_state import TopicState
from leader.traffic.broker_traffic import SEGMENT_WEIGHT, carried, weights_of
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import begin_replacement, new_topic


def topic(name: str, *owners: str) -> TopicState:
    return new_topic(name, TopicConfig(), len(owners), lambda n: (owners[n],), now_us=1)


def load(segment: int, work: float) -> SegmentTraffic:
    """Of an old segment of topic t that costs its owner so many default targets."""
    return SegmentTraffic("t", segment, work * Target().messages, 0, *[0.5] * 5, 1e6)


@pytest.fixture
def table() -> TrafficTable:
    table = TrafficTable()
    for state in (topic("t", "a", "b"), topic("u", "c")):
        table.apply(state)
    table.record([load(0, 2.0), load(1, 1.0)], now_seconds=1)
    return table


def test_what_nothing_is_known_of_weighs_as_the_average_of_what_is(table: TrafficTable) -> None:
    assert weights_of(table, "t", [0, 99]) == pytest.approx({0: 2 + SEGMENT_WEIGHT, 99: 1.5 + SEGMENT_WEIGHT})
    assert weights_of(table, "u", [0]) == pytest.approx({0: 1.5 + SEGMENT_WEIGHT})
    assert weights_of(TrafficTable(), "t", [0]) == {0: SEGMENT_WEIGHT}


def test_what_is_about_to_be_sealed_is_carried_by_nobody_and_counts_for_no_average(table: TrafficTable) -> None:
    for state, segment, owner in ((topic("t", "a", "b"), 0, "x"), (topic("u", "c"), 0, "y")):
        begun = begin_replacement(state, [segment], lambda n, owner=owner: (owner,), "move", now_us=2)
        assert begun is not None
        table.expect(begun)
    expected = {"a": 0, "b": 1 + SEGMENT_WEIGHT, "c": 0, "x": 2 + SEGMENT_WEIGHT, "y": 1 + SEGMENT_WEIGHT}
    assert carried(table) == pytest.approx(expected)
