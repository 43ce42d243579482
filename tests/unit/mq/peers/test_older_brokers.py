"""This version and brokers of commit 655fd72 understand each other, in both directions."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from leader.traffic.traffic_averages import RecentTraffic, SegmentTraffic
from mq.base.errors import NotFound, PeerFailed, PeerSilent
from mq.http.problems import problem_of
from mq.peers import older_brokers
from mq.peers.calls import REPORT_TRAFFIC, VIEW_TRAFFIC, CallTable, ToBroker, ToTopic
from mq.peers.older_brokers import OLDER_REPORT_TRAFFIC, OLDER_VIEW_TRAFFIC
from mq.peers.peers import Peers
from mq.peers.traffic_report import ShownTraffic, TrafficReport, unpack_report
from mq.peers.transport import PeerAnswer

URL = "http://b:1"
RECENT = RecentTraffic(1.0, 2.0, 0.5, 3.0, 4.0, 5)
# As commit 655fd72 sends them.
OLD_VIEW = (
    b'[{"segment":3,"load":{"messages_per_second":1.0,"bytes_per_second":2.0,"times_target":0.5,'
    b'"read_messages_per_second":3.0,"read_bytes_per_second":4.0,"pending_bytes":5},"hot_slot":7}]'
)
OLD_REPORT = (
    b'{"broker":"b.01","pending_bytes":9,"topics":["t"],"topic":[0],"segment":[3],"messages_per_second":[1.0],'
    b'"bytes_per_second":[2.0],"recent":[3.0],"pressure":[4.0],"firing_average":[5.0],"warmest":[6.0],'
    b'"merge_average":[7.0],"age_seconds":[8.0],"read_messages_per_second":[9.0],"read_bytes_per_second":[10.0],'
    b'"segment_pending_bytes":[11]}'
)
REPORT = TrafficReport("b.01", 9, [SegmentTraffic("t", 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)])


def unknown(path: str) -> PeerAnswer:
    """A broker's answer to a path that it does not know."""
    problem = problem_of(NotFound("path", f"there is no such {path}"))
    return PeerAnswer(problem.status, {}, problem.body())


class Broker:
    """Knows only some paths, and records what it is sent."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self.answers = answers
        self.sent: list[tuple[str, str, bytes]] = []

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        path = urlsplit(url).path.removeprefix("/internal/v1")
        self.sent.append((method, path, bytes(body)))
        answer = self.answers.get(f"{method} {path}")
        return unknown(path) if answer is None else PeerAnswer(200, {}, answer)

    async def close(self) -> None:
        """Nothing to close."""

    @property
    def paths(self) -> list[str]:
        """The paths of all requests so far."""
        return [path for _, path, _ in self.sent]


OLD = {"POST /load": b'{"taken":true}', "GET /topics/t/loads": OLD_VIEW}
NEW = {"POST /traffic": b'{"taken":true}', "GET /topics/t/traffic": OLD_VIEW.replace(b'"load"', b'"traffic"')}


async def test_an_old_leader_gets_reports_in_its_form() -> None:
    broker = Broker(OLD)
    peers = Peers(broker)
    assert await peers.report_traffic(URL, REPORT) is True
    assert broker.paths == ["/traffic", "/load"]
    assert orjson.loads(broker.sent[1][2]) == orjson.loads(OLD_REPORT)
    await peers.report_traffic(URL, REPORT)
    assert broker.paths[2:] == ["/load"], "what it does not know is remembered"


async def test_an_old_leader_s_view_is_understood() -> None:
    broker = Broker(OLD)
    assert await Peers(broker).traffic_view(URL, "t", timeout_seconds=1) == {3: ShownTraffic(RECENT, 7)}
    assert broker.paths == ["/topics/t/traffic", "/topics/t/loads"]


async def test_a_broker_of_this_version_is_sent_one_request() -> None:
    broker = Broker(NEW)
    peers = Peers(broker)
    assert await peers.report_traffic(URL, REPORT) is True
    assert await peers.traffic_view(URL, "t", timeout_seconds=1) == {3: ShownTraffic(RECENT, 7)}
    assert broker.paths == ["/traffic", "/topics/t/traffic"]


async def test_a_broker_that_was_upgraded_at_its_url_is_sent_this_form_again() -> None:
    broker = Broker(OLD)
    peers = Peers(broker)
    await peers.report_traffic(URL, REPORT)
    broker.answers = NEW
    broker.sent.clear()
    await peers.report_traffic(URL, REPORT)
    await peers.report_traffic(URL, REPORT)
    assert broker.paths == ["/load", "/traffic", "/traffic"]


async def test_a_broker_that_knows_neither_form_refuses() -> None:
    broker = Broker({})
    with pytest.raises(PeerFailed):
        await Peers(broker).report_traffic(URL, REPORT)
    assert broker.paths == ["/traffic", "/load"]


@pytest.mark.parametrize(
    "answer",
    [
        PeerAnswer(404, {}, b"<html>"),
        PeerAnswer(404, {}, b"[]"),
        PeerAnswer(404, {}, problem_of(NotFound("topic", "there is no topic 't'")).body()),
        PeerAnswer(500, {}, unknown("/x").body),
    ],
    ids=["a web server", "no object", "no such topic", "another status"],
)
async def test_other_answers_do_not_make_a_broker_old(answer: PeerAnswer) -> None:
    class Other(Broker):
        async def send(self, method: str, url: str, *_: Any, **__: Any) -> PeerAnswer:
            await super().send(method, url, {}, b"", timeout_seconds=1)
            return answer

    broker = Other({})
    with pytest.raises((PeerFailed, PeerSilent)):
        await Peers(broker).report_traffic(URL, REPORT)
    assert broker.paths == ["/traffic"]


async def test_the_remembered_urls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older_brokers, "MOST_OLDER", 2)
    broker = Broker(OLD)
    peers = Peers(broker)
    for name in ("a", "b", "c"):
        await peers.report_traffic(f"http://{name}", REPORT)
    broker.sent.clear()
    for name in ("c", "b", "a"):
        await peers.report_traffic(f"http://{name}", REPORT)
    assert broker.paths == ["/load", "/load", "/traffic", "/load"]


def test_an_old_broker_s_requests_are_understood() -> None:
    table = CallTable([REPORT_TRAFFIC, VIEW_TRAFFIC, OLDER_REPORT_TRAFFIC, OLDER_VIEW_TRAFFIC])
    assert table.find("POST", "/internal/v1/load", b"") == (OLDER_REPORT_TRAFFIC, ToBroker())
    assert table.find("GET", "/internal/v1/topics/t/loads", b"") == (OLDER_VIEW_TRAFFIC, ToTopic("t"))
    assert unpack_report(OLD_REPORT) == REPORT


def test_an_old_broker_is_answered_in_its_form() -> None:
    assert orjson.loads(OLDER_VIEW_TRAFFIC.pack({3: ShownTraffic(RECENT, 7)}).body) == orjson.loads(OLD_VIEW)
    assert OLDER_REPORT_TRAFFIC.pack(True).body == OLD["POST /load"]
