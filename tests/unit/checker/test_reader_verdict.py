"""What a reader may and may not be given on the way."""

from tests.cluster.checker.history import REACHED, Attempt, Found, Reader, Request, Sent, Visit
from tests.cluster.checker.reader_verdict import judge_readers

B0, B1 = "http://b0", "http://b1"
MESSAGES = [Sent("k", number) for number in range(6)]
LOG = {(0, number): Found(0, number, b"k", sent.value) for number, sent in enumerate(MESSAGES)}


def visit(url: str, behind: int, offsets: range, at_seconds: float = 0.0, end: str = "cut") -> Visit:
    found = [Found(0, offset, b"k", MESSAGES[offset].value, at_seconds) for offset in offsets]
    return Visit(url, behind, at_seconds, at_seconds, found, end)


def reader(*visits: Visit, finished: bool = False) -> Reader:
    return Reader("r", "t", "stream", joined_seconds=0.0, visits=list(visits), finished=finished)


def judge(*readers: Reader, requests: tuple[Request, ...] = ()) -> list[str]:
    return judge_readers(readers, requests, LOG, staleness_seconds=5.0)


def test_a_reader_goes_on_behind_its_marker() -> None:
    assert judge(reader(visit(B0, 0, range(3)), visit(B1, 3, range(3, 6)))) == []
    assert judge(reader(visit(B0, 0, range(3)), visit(B1, 2, range(2, 6)), visit(B0, 7, range(0)))) == []
    # Behind a message that it got on its second way.
    assert judge(reader(visit(B0, 0, range(3)), visit(B1, 1, range(1, 4)), visit(B0, 5, range(3, 6)))) == []


def test_a_marker_that_leads_elsewhere() -> None:
    assert judge(reader(visit(B0, 0, range(3)), visit(B1, 3, range(4, 6)))) == [
        "skipped: r at http://b1: segment 0 goes on at 4, not 3"
    ]
    assert judge(reader(visit(B0, 0, range(3)), visit(B1, 3, range(2, 6)))) == [
        "went back: r at http://b1: segment 0 gave 2, not 3"
    ]
    assert judge(reader(visit(B0, 1, range(1, 3)))) == ["impossible: r went on behind message 1 of 0"]


def test_a_reader_from_the_middle_begins_where_it_was_told() -> None:
    late = reader(visit(B0, 0, range(2, 4)))
    late.start, late.positions = "latest", {0: 2}
    assert judge(late) == []
    late.positions = {0: 1}
    assert judge(late) == ["skipped: r at http://b0: segment 0 goes on at 2, not 1"]


def request(started_seconds: float) -> Request:
    attempt = Attempt(B0, started_seconds, started_seconds + 1, "acknowledged", ((0, 5, 1),))
    return Request("p", "t", (MESSAGES[5],), [attempt])


def test_a_reader_from_the_middle_gets_what_was_published_after_it_joined() -> None:
    late = reader(visit(B0, 0, range(2, 4)), finished=True)
    late.start, late.positions, late.joined_seconds = "latest", {0: 2}, 10.0
    assert judge(late, requests=(request(9.0),)) == []
    (complaint,) = judge(late, requests=(request(11.0),))
    assert complaint.startswith("not seen: Sent(key='k', number=5)")
    late.finished = False
    assert judge(late, requests=(request(11.0),)) == []


def test_a_broker_knows_what_it_has_given() -> None:
    seen = reader(visit(B0, 0, range(4), at_seconds=1.0))
    forgetful = reader(visit(B0, 0, range(3), at_seconds=2.0, end=REACHED))
    assert judge(seen, forgetful) == [
        "back in time: r was told by http://b0 that segment 0 ends at 3, though 3 had been seen 0 s before"
    ]
    forgetful.visits[0].url = B1
    assert judge(seen, forgetful) == []


def test_another_broker_knows_it_some_seconds_later() -> None:
    seen = reader(visit(B0, 0, range(4), at_seconds=1.0))
    at_b1 = reader(visit(B1, 0, range(3), at_seconds=5.9, end=REACHED))
    assert judge(seen, at_b1) == []
    at_b1.visits[0].started_seconds = 6.1
    assert judge(seen, at_b1) == [
        "back in time: r was told by http://b1 that segment 0 ends at 3, though 3 had been seen 5 s before"
    ]


def test_what_was_acknowledged_is_known_some_seconds_later() -> None:
    early, late = (reader(visit(B0, 0, range(5), at_seconds=at, end=REACHED)) for at in (4.0, 9.0))
    assert judge(early, requests=(request(1.0),)) == []
    assert judge(late, requests=(request(1.0),)) == [
        "back in time: r was told by http://b0 that segment 0 ends at 5, though 5 had been seen 5 s before"
    ]


def test_messages_in_another_order_for_a_reader() -> None:
    requests = [
        Request("p", "t", (m,), [Attempt(B0, 0, 0, "acknowledged", ((n, 0, 1),))]) for n, m in enumerate(MESSAGES)
    ]
    log = {(n, 0): Found(n, 0, b"k", sent.value) for n, sent in enumerate(MESSAGES)}
    wrong = reader(Visit(B0, 0, 0.0, found=[log[1, 0], log[0, 0]]))
    assert judge_readers([wrong], requests, log, staleness_seconds=5.0) == [
        "r: out of order: Sent(key='k', number=0) after number 1 of its key"
    ]
