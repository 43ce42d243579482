"""What the audit trail says of a request."""

import json

from mq.audit.gathering import MOST_KINDS, MOST_OF_A_SENDER, Gathering
from mq.audit.records import MANY, AuditRecord, record_of, rows_of
from mq.http.routes import match_route


def record(principal: str, address: str, method: str, path: str, status: int, *, request_id: str = "") -> AuditRecord:
    """The record of a request over HTTP."""
    match = match_route(method, path)
    return record_of(principal, address, match.need, match.text, status, request_id=request_id)


def refusal(path: str = "/v1/topics/orders", *, name: str = "ann", request_id: str = "r") -> AuditRecord:
    return record(name, "10.0.0.1", "DELETE", path, 403, request_id=request_id)


def test_a_change() -> None:
    found = record("ann", "10.0.0.1", "POST", "/v1/topics/orders/groups/billing/redrive", 202, request_id="r1")
    rows = rows_of([(found, 1)], "b1")
    assert rows["key"].to_pylist() == ["ann"]
    assert json.loads(rows["value"][0].as_py()) == {
        "format": 1,
        "principal": "ann",
        "address": "10.0.0.1",
        "action": "manage",
        "resource": "topic:orders/billing",
        "request": "POST /v1/topics/orders/groups/billing/redrive",
        "outcome": "done",
        "status": 202,
        "count": 1,
        "broker": "b1",
        "request_id": "r1",
    }


def test_outcomes() -> None:
    found = {status: record("", "", "PUT", "/v1/topics/t", status).outcome for status in (200, 202, 401, 403, 404, 503)}
    assert found == {200: "done", 202: "done", 401: "refused", 403: "refused", 404: "failed", 503: "failed"}


def test_resources() -> None:
    found = [record("", "", "DELETE", path, 403).resource for path in ("/v1/topics/t", "/v1/topics/t/groups/g", "/odd")]
    assert found == ["topic:t", "topic:t/g", "cluster"]


def test_a_secret_is_left_out_and_a_long_path_cut() -> None:
    assert record("", "", "PUT", "/v1/topics/t/uploads/s3cr3t", 403).request == "PUT /v1/topics/t/uploads/(id)"
    assert len(record("", "", "GET", "/v1/topics/" + "t" * 5000, 401).request) < 320
    assert len(record("", "", "GET", "/v1/topics/" + "t" * 5000, 401).resource) < 320


def test_nobody_has_no_key() -> None:
    rows = rows_of([(record("", "::1", "GET", "/v1/topics", 401), 7)], "b1")
    assert rows["key"].to_pylist() == [None]
    value = json.loads(rows["value"][0].as_py())
    assert (value["principal"], value["count"], value["request_id"]) == (None, 7, None)


def test_refusals_that_are_alike_are_counted_and_changes_are_not() -> None:
    gathering = Gathering()
    for number in range(5):
        gathering.add(refusal(request_id=str(number)))
        gathering.add(record("ann", "10.0.0.1", "PUT", "/v1/topics/t", 200, request_id=str(number)))
    assert [(each.request_id, count) for each, count in gathering] == [
        *((str(number), 1) for number in range(5)),
        ("0", 5),
    ]
    assert gathering.has_changes


def counted(gathering: Gathering) -> list[tuple[str, str, str, int]]:
    return [(each.principal, each.address, each.resource, count) for each, count in gathering]


def test_a_flood_of_different_refusals_of_one_is_small() -> None:
    gathering = Gathering()
    for number in range(1000):
        gathering.add(refusal(f"/v1/topics/t{number}"))
    *first, last = counted(gathering)
    assert [each[2:] for each in first] == [(f"topic:t{number}", 1) for number in range(MOST_OF_A_SENDER)]
    assert last == ("ann", "10.0.0.1", MANY, 1000 - MOST_OF_A_SENDER)


def test_who_is_nobody_is_counted_by_address_whatever_they_ask_for() -> None:
    gathering = Gathering()
    for number in range(1000):
        gathering.add(record("", f"10.0.0.{number % 3}", "PUT", f"/v1/topics/t{number}", 401, request_id="r"))
    assert counted(gathering) == [("", f"10.0.0.{n}", f"topic:t{n}", 334 - (n > 0)) for n in range(3)]


def test_a_flood_of_very_many_is_small() -> None:
    gathering = Gathering()
    for number in range(10 * MOST_KINDS):
        gathering.add(refusal(name=f"ann{number}"))
    assert len(gathering) == MOST_KINDS + 1
    assert not gathering.has_changes
    assert counted(gathering)[-1] == (MANY, MANY, MANY, 9 * MOST_KINDS)


def test_a_topic_that_is_called_uploads_is_shown() -> None:
    path = "/v1/topics/uploads/groups/g/reset"
    assert record("", "", "POST", path, 403).request == f"POST {path}"
