"""What a broker logs about its cluster: each change once."""

import logging

import pytest

from filer.clock import ManualClock
from leader.membership.cluster_view import ClusterView, Listeners
from leader.membership.coordinator import BrokerInfo
from leader.membership.zookeeper_round import RoundResult


def test_each_change_of_the_cluster_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    view = ClusterView(clock, session_timeout_seconds=10)
    listeners = Listeners(view)

    def round_(leader: str, *brokers: BrokerInfo) -> list[str]:
        caplog.clear()
        result = RoundResult(10, brokers, leader, leader == "a", {}, 1)
        for _ in range(2):
            view.apply(result, began_seconds=clock.monotonic_seconds())
            listeners.view_changed()
        return caplog.messages

    a, b = BrokerInfo("a", "http://a", "", "1"), BrokerInfo("b", "http://b", "z", "1")
    drained = BrokerInfo("b", "http://b", "z", "1", draining=True)
    assert round_("b", a, b) == [
        "broker_joined broker=a url=http://a",
        "broker_joined broker=b url=http://b zone=z",
        "leader_changed leader=b",
    ]
    assert round_("b", a, drained) == ["broker_drains broker=b"]
    assert round_("b", a, b) == ["broker_takes_part_again broker=b"]
    assert round_("a", a) == ["broker_left broker=b", "leader_changed leader=a before=b", "leadership_gained"]
    assert round_("b", a, b)[1:] == ["leader_changed leader=b before=a", "leadership_lost"]
