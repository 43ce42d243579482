"""Every call between brokers comes out at the server as the caller packed it, and its answer at the caller."""

from typing import Any
from urllib.parse import urlsplit

import numpy as np
import orjson
import pyarrow as pa
import pytest

from filer.errors import InvalidInput, SegmentMoved
from filer.format.requests import Position
from filer.format.schema import MessageSchema
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import KnownAverages, RecentTraffic
from leader.transitions import SealedEnd
from mq.base.errors import PeerFailed, PeerSilent
from mq.peers import calls, older_brokers
from mq.peers.answer_forms import Refusal, StoreProof, TailPage
from mq.peers.calls import CALLS, Call, CallTable
from mq.peers.group_call import GroupReply, GroupRequest, pack_group_call, unpack_group_call
from mq.peers.traffic_report import ShownTraffic
from mq.peers.transport import PeerAnswer

SEGMENT = ("t", 7)
VIEW = {3: ShownTraffic(RecentTraffic(1.5, 2.0, 0.25), 40_000), 4: ShownTraffic(None, None)}
TABLE = MessageSchema.of("binary", "string").log.empty_table()
EXAMPLES: list[tuple[Call[Any, Any], Any, str, list[Any]]] = [
    (
        calls.APPEND,
        calls.ToSegmentAt(*SEGMENT, 5),
        "POST /internal/v1/topics/t/segments/7/append?version=5",
        [[[Position(7, 0, 2)], Refusal("segment-moved", "elsewhere")], []],
    ),
    (
        calls.SEAL,
        calls.ToSeal(*SEGMENT, 5, 2.5),
        "POST /internal/v1/topics/t/segments/7/seal?version=5&wait=2.5",
        [SealedEnd(9, 8, 700), SealedEnd(9, None, None), None],
    ),
    (
        calls.READ_TAIL,
        calls.ToReadTail(*SEGMENT, 3, 100, 1000, 0.5),
        "GET /internal/v1/topics/t/segments/7/tail?offset=3&max_rows=100&max_bytes=1000&wait=0.5",
        [TailPage(TABLE, 3, True, 12), TailPage(TABLE, 3, False)],
    ),
    (
        calls.ASK_GROUP,
        calls.ToGroups("__groups", 7, 5, 20.0),
        "POST /internal/v1/topics/__groups/segments/7/group?version=5&wait=20.0",
        [GroupReply(204, "application/json", b""), GroupReply(200, "text/plain", b"x", 3)],
    ),
    (
        calls.REPLICATE,
        calls.ToReplicate(*SEGMENT, 5, 30, 20),
        "POST /internal/v1/topics/t/segments/7/replicate?version=5&base=30&stored=20",
        [31],
    ),
    (
        calls.TAKE_OVER,
        calls.ToSegmentAt(*SEGMENT, 5),
        "POST /internal/v1/topics/t/segments/7/takeover?version=5",
        [SealedEnd(9, 8, 700)],
    ),
    (calls.REPORT_TRAFFIC, calls.ToBroker(), "POST /internal/v1/traffic", [True, False]),
    (older_brokers.OLDER_REPORT_TRAFFIC, calls.ToBroker(), "POST /internal/v1/load", [True, False]),
    (calls.VIEW_TRAFFIC, calls.ToTopic("t"), "GET /internal/v1/topics/t/traffic", [VIEW, {}]),
    (older_brokers.OLDER_VIEW_TRAFFIC, calls.ToTopic("t"), "GET /internal/v1/topics/t/loads", [VIEW, {}]),
    (calls.SLOT_TRAFFIC, calls.ToSegment(*SEGMENT), "GET /internal/v1/topics/t/segments/7/slots", [None]),
    (
        calls.AVERAGES,
        calls.ToSegment(*SEGMENT),
        "GET /internal/v1/topics/t/segments/7/averages",
        [KnownAverages(3.0, {10.0: (1.0, 2.0, 0.5)})],
    ),
    (
        calls.GIVE_AVERAGES,
        calls.ToSegmentAt(*SEGMENT, 5),
        "POST /internal/v1/topics/t/segments/7/averages?version=5",
        [True],
    ),
    (calls.REFRESH, calls.ToTopicAt("t", 5), "POST /internal/v1/topics/t/refresh?version=5", [6]),
    (calls.DRAIN, calls.ToBroker(), "POST /internal/v1/drain", [4]),
    (calls.UNDRAIN, calls.ToBroker(), "DELETE /internal/v1/drain", [4]),
    (calls.PRESENCE, calls.ToBroker(), "GET /internal/v1/presence", ["b.01"]),
    (calls.SIGHT, calls.ToWitness(1.5), "POST /internal/v1/sight?heard=1.5", ["refused", "answered", "unclear"]),
    (calls.TELL_REFUSED, calls.ToBroker(), "POST /internal/v1/refused", [True, False]),
    (
        calls.PROVE_STORE,
        calls.ToBroker(),
        "POST /internal/v1/storeproof",
        [StoreProof("b.01", "0ff"), StoreProof("b.01", None)],
    ),
]
IDS = [f"{call.method} {call.name}" for call, *_ in EXAMPLES]
TABLE_OF_ALL = CallTable([*CALLS, older_brokers.OLDER_REPORT_TRAFFIC, older_brokers.OLDER_VIEW_TRAFFIC])


def test_every_call_has_an_example() -> None:
    assert set(CALLS) <= {call for call, *_ in EXAMPLES}


@pytest.mark.parametrize(("call", "parameters", "request_line", "answers"), EXAMPLES, ids=IDS)
def test_a_request_comes_out_as_it_went_in(
    call: Call[Any, Any], parameters: Any, request_line: str, answers: list[Any]
) -> None:
    assert f"{call.method} {call.target(parameters)}" == request_line
    url = urlsplit(call.target(parameters))
    assert TABLE_OF_ALL.find(call.method, url.path, url.query.encode()) == (call, parameters)


@pytest.mark.parametrize(("call", "parameters", "request_line", "answers"), EXAMPLES, ids=IDS)
def test_an_answer_comes_out_as_it_went_in(
    call: Call[Any, Any], parameters: Any, request_line: str, answers: list[Any]
) -> None:
    for answer in answers:
        assert call.unpack(call.pack(answer)) == answer


def test_a_call_about_a_group_comes_out_as_it_went_in() -> None:
    call = GroupRequest("t", "g", "acks", b'{"messages":\n[]}', "application/json")
    assert unpack_group_call(pack_group_call(call)) == call
    for wrong in (b"", b"[]", b"{}", b'{"topic":"t"}\n'):
        with pytest.raises(InvalidInput, match="no call about a group"):
            unpack_group_call(wrong)


def test_traffic_per_slot_comes_out_as_it_went_in() -> None:
    counted = SlotTraffic(np.array([1, 2], np.float32), np.array([3, 4], np.float32), 5)
    found = calls.SLOT_TRAFFIC.unpack(calls.SLOT_TRAFFIC.pack(counted))
    assert found is not None and found.observations == 5
    assert (found.messages.tolist(), found.size_bytes.tolist()) == ([1, 2], [3, 4])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/internal/v1/topics/t/segments/7/seal"),
        ("POST", "/internal/v1/topics/t/seal"),
        ("POST", "/internal/v1/nothing"),
        ("POST", "/internal/v1"),
        ("POST", "/internal/v1/topics/t/segments/x/seal"),
        ("POST", "/internal/v1/topics/t/segments/7/seal/more"),
    ],
)
def test_another_path_is_no_call(method: str, path: str) -> None:
    assert TABLE_OF_ALL.find(method, path, b"version=1") is None


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (b"", "the parameter version is missing"),
        (b"version=x", "the query is not valid"),
        (b"version=1&wait=soon", "the query is not valid"),
        (b"version=\xff", "the query is not valid"),
    ],
)
def test_a_wrong_query_is_refused(query: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        TABLE_OF_ALL.find("POST", "/internal/v1/topics/t/segments/7/seal", query)


def test_parameters_that_only_a_newer_broker_sends_are_ignored() -> None:
    found = TABLE_OF_ALL.find("POST", "/internal/v1/topics/t/segments/7/seal", b"version=1&later=2")
    assert found == (calls.SEAL, calls.ToSeal(*SEGMENT, 1))


@pytest.mark.parametrize(
    ("slug", "status", "kind"),
    [("segment-moved", 503, SegmentMoved), ("topic-not-found", 404, PeerFailed), ("internal", 500, PeerSilent)],
)
def test_a_problem_is_raised_as_the_error_that_it_stands_for(slug: str, status: int, kind: type[Exception]) -> None:
    body = orjson.dumps({"type": f"urn:braidmq:{slug}", "detail": "why"})
    with pytest.raises(kind, match="why"):
        calls.DRAIN.unpack(PeerAnswer(status, {}, body))


def test_an_empty_tail_keeps_its_columns() -> None:
    page = calls.READ_TAIL.unpack(calls.READ_TAIL.pack(TailPage(TABLE, 3, True)))
    assert page.table.schema == TABLE.schema and isinstance(page.table, pa.Table)
