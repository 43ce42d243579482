"""A broker's report of the traffic of all its topics."""

from typing import Any, cast
from unittest.mock import Mock

from filer.clock import ManualClock
from leader.traffic_reports import TrafficReports
from mq.limits.front_store import FrontStore
from mq.traffic.topic_traffic import TopicTraffic
from mq.traffic.traffic_reporter import TOPICS_AT_ONCE, TrafficReporter

TOPICS = 3 * TOPICS_AT_ONCE + 1
RESTING = range(-1000, 0)
"""They take no turn."""
REPEATED = range(500, 520)
"""They have nothing new to report."""


class Traffic:
    """Of a topic with one segment, which is its number."""

    def __init__(self, number: int, looked_at: list[int]) -> None:
        self.number, self._looked_at = number, looked_at

    def rests(self, now_seconds: float) -> bool:
        return self.number in RESTING

    def repeat(self, interval_seconds: float) -> list[int] | None:
        return [self.number] if self.number in REPEATED else None

    def report(self, interval_seconds: float) -> list[int]:
        self._looked_at.append(self.number)
        return [self.number]


async def test_a_few_topics_are_looked_at_in_a_turn_and_all_are_reported() -> None:
    """Two thousand at once held up everybody else for 50 ms. Some come and go meanwhile."""
    looked_at: list[int] = []
    topics = {number: Traffic(number, looked_at) for number in (*RESTING, *range(TOPICS), *REPEATED)}
    in_turns: list[int] = []

    async def turn() -> None:
        in_turns.append(len(looked_at))
        topics[TOPICS + len(in_turns)] = Traffic(TOPICS + len(in_turns), looked_at)

    leader, coordinator = Mock(spec=TrafficReports), Mock()
    coordinator.leader.return_value = "b"
    nobody: Any = None
    reporter = TrafficReporter(
        broker="b",
        clock=ManualClock(),
        interval_seconds=1.0,
        traffic=lambda: cast("list[TopicTraffic]", topics.values()),
        front_store=FrontStore(1),
        coordinator=coordinator,
        peers=nobody,
        url_of=nobody,
        reports=leader,
        turn=turn,
    )
    await reporter.report()
    assert in_turns == [0, TOPICS_AT_ONCE, 2 * TOPICS_AT_ONCE, 3 * TOPICS_AT_ONCE]
    leader.record.assert_called_once_with("b", 0, list(range(TOPICS)), list(REPEATED))
