"""The judge must see what it is there to see: each history here is bad in one way."""

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.support.workload import Form, Found, History, Producer, Request, Sent, arrow_stream, judge


def sent(key: str, number: int) -> Sent:
    return Sent(key, number)


def found(segment: int, offset: int, message: Sent) -> Found:
    return Found(segment, offset, message.key.encode(), message.value)


A0, A1, B0, LOST = sent("a", 0), sent("a", 1), sent("b", 0), sent("c", 0)
GOOD = History(
    [
        Request((A0,), "acknowledged", ((0, 0, 1),)),
        Request((A1, B0), "acknowledged", ((0, 1, 1), (1, 0, 1))),
        Request((LOST,), "unknown"),
        Request((sent("d", 0),), "failed"),
    ]
)
READ = [found(0, 0, A0), found(0, 1, A1), found(1, 0, B0)]


def test_good_histories_pass() -> None:
    assert judge(GOOD, READ) == []
    assert judge(GOOD, [*READ, found(1, 1, LOST)]) == []
    assert judge(History(), []) == []


def test_a_read_that_stops_early() -> None:
    assert judge(GOOD, READ[:-1]) == [f"lost: {B0} was acknowledged and is not there"]


def test_a_doubled_message() -> None:
    assert judge(GOOD, [*READ, found(1, 1, B0)]) == [
        f"doubled: {B0} is there 2 times",
        "moved: Sent(key='b', number=0) stands at (1, 1), its request was told ((0, 1, 1), (1, 0, 1))",
    ]


def test_an_unknown_message_twice() -> None:
    assert judge(GOOD, [*READ, found(1, 1, LOST), found(1, 2, LOST)]) == [f"doubled: {LOST} is there 2 times"]


def test_a_refused_message_that_is_there() -> None:
    problems = judge(GOOD, [*READ, found(1, 1, sent("d", 0))])
    assert problems == ["not refused: Sent(key='d', number=0) was answered as certainly not stored and is there"]


def test_a_message_that_nobody_sent() -> None:
    assert judge(GOOD, [*READ, Found(1, 1, b"x", b"x 7")]) == ["never sent: b'x 7'"]


def test_a_key_out_of_order() -> None:
    history = History([Request((A1,), "acknowledged", ((0, 0, 1),)), Request((A0,), "acknowledged", ((0, 1, 1),))])
    assert judge(history, [found(0, 0, A1), found(0, 1, A0)]) == [f"out of order: {A0} after number 1 of its key"]


def test_an_unknown_message_may_come_late() -> None:
    history = History([Request((A0,), "unknown"), Request((A1,), "acknowledged", ((0, 0, 1),))])
    assert judge(history, [found(0, 0, A1), found(0, 1, A0)]) == []


def test_a_gap_and_a_read_that_goes_back() -> None:
    history = History([Request((A0,), "unknown"), Request((A1,), "unknown"), Request((B0,), "unknown")])
    assert judge(history, [found(0, 0, A0), found(0, 2, A1)]) == ["gap: segment 0 goes on at 2, not 1"]
    assert judge(history, [found(0, 0, A0), found(0, 1, A1), found(0, 0, B0)]) == [
        "went back: segment 0 gave 0 after 1"
    ]


def test_a_position_given_twice() -> None:
    again = Request((LOST,), "acknowledged", ((0, 0, 1),))
    history = replace(GOOD, requests=[*GOOD.requests[:2], again])
    assert "used twice: positions [(0, 0)] were given to two requests" in judge(history, READ)


@pytest.mark.parametrize("form", ["raw", "json", "arrow"])
def test_a_producer_numbers_per_key(form: Form) -> None:
    producer = Producer("p", form, keys=2, rows=3)
    taken = [message for _ in range(6) for message in producer.take()]
    for key in ("p.0", "p.1"):
        numbers = [message.number for message in taken if message.key == key]
        assert numbers == list(range(len(numbers)))


def test_arrow_bodies_are_what_they_say() -> None:
    body = arrow_stream({"key": [b"k"], "value": [b"v"]})
    assert pa.ipc.open_stream(body).read_all().to_pylist() == [{"key": b"k", "value": b"v"}]
