"""How many brokers the load would like."""

import pytest

from filer.topic.topic_config import TopicConfig
from leader.policy.brokers_wanted import brokers_wanted
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import new_topic


def table(*loads: tuple[float, float] | None) -> TrafficTable:
    """Segments with their recent loads and those over the merge rule's window, heard of at 10 seconds."""
    made = TrafficTable()
    made.apply(new_topic("t", TopicConfig(), len(loads), lambda n: ("b",), now_us=1))
    heard = [SegmentTraffic("t", n, 1, 1, both[0], 0, 0, 0, both[1], 1) for n, both in enumerate(loads) if both]
    made.record(heard, now_seconds=10)
    return made


def wanted(of: TrafficTable, *, brokers: int = 3, now_seconds: float = 10) -> int:
    return brokers_wanted(of, now_seconds=now_seconds, stale_seconds=5, brokers=brokers, segments_per_broker=2)


@pytest.mark.parametrize(("load", "brokers"), [(0.0, 1), (0.5, 1), (1.0, 2), (1.1, 3), (10.0, 20)])
def test_as_many_as_carry_it(load: float, brokers: int) -> None:
    assert wanted(table(*[(load, load)] * 4)) == brokers


def test_a_flood_counts_at_once_and_its_end_only_once_it_has_lasted() -> None:
    assert wanted(table((8, 0))) == 4
    assert wanted(table((0, 8))) == 4


def test_while_a_load_is_unknown_none_is_too_many() -> None:
    assert wanted(table((1, 1), None)) == 3
    assert wanted(table((9, 9), None)) == 5
    assert wanted(table((1, 1), (1, 1)), now_seconds=20) == 3, "what was heard long ago is not known"


def test_no_segments_want_one() -> None:
    assert wanted(TrafficTable()) == 1
