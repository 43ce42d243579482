"""The judge must see what it is there to see: each history here is bad in one way."""

from tests.cluster.checker.history import Attempt, Found, History, Outcome, Position, Request, Sent
from tests.cluster.checker.log_verdict import judge_log

TOPIC = "t"


def sent(key: str, number: int) -> Sent:
    return Sent(key, number)


def found(segment: int, offset: int, message: Sent) -> Found:
    return Found(segment, offset, message.key.encode(), message.value)


def attempt(outcome: Outcome, *positions: Position, final: bool = False) -> Attempt:
    return Attempt("http://broker", 0.0, 1.0, outcome, positions, final)


def request(messages: tuple[Sent, ...], *attempts: Attempt, sequence: int | None = None) -> Request:
    return Request("p", TOPIC, messages, list(attempts), sequence)


def judge(history: History, log: list[Found]) -> list[str]:
    return judge_log(history, TOPIC, log)


A0, A1, B0, LOST = sent("a", 0), sent("a", 1), sent("b", 0), sent("c", 0)
FIRST = request((A0,), attempt("acknowledged", (0, 0, 1)))
SECOND = request((A1, B0), attempt("acknowledged", (0, 1, 1), (1, 0, 1)))
UNKNOWN = request((LOST,), attempt("unknown"))
GOOD = History(requests=[FIRST, SECOND, UNKNOWN, request((sent("d", 0),), attempt("failed"))])
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


def test_a_message_under_another_key() -> None:
    problems = judge(GOOD, [READ[0], Found(0, 1, b"x", A1.value), READ[2]])
    assert problems == [f"wrong key: {A1} has the key b'x'"]


def test_a_key_out_of_order() -> None:
    requests = [request((A1,), attempt("acknowledged", (0, 0, 1))), request((A0,), attempt("acknowledged", (0, 1, 1)))]
    problems = judge(History(requests=requests), [found(0, 0, A1), found(0, 1, A0)])
    assert problems == [f"out of order: {A0} after number 1 of its key"]


def test_an_unknown_message_may_come_late() -> None:
    requests = [request((A0,), attempt("unknown")), request((A1,), attempt("acknowledged", (0, 0, 1)))]
    assert judge(History(requests=requests), [found(0, 0, A1), found(0, 1, A0)]) == []


def test_a_gap_and_a_read_that_goes_back() -> None:
    history = History(requests=[request((each,), attempt("unknown")) for each in (A0, A1, B0)])
    assert judge(history, [found(0, 0, A0), found(0, 2, A1)]) == ["gap: segment 0 goes on at 2, not 1"]
    assert judge(history, [found(0, 0, A0), found(0, 1, A1), found(0, 0, B0)]) == [
        "went back: segment 0 gave 0 after 1"
    ]


def test_a_position_given_twice() -> None:
    again = request((LOST,), attempt("acknowledged", (0, 0, 1)))
    problems = judge(History(requests=[FIRST, SECOND, again]), READ)
    assert "used twice: positions [(0, 0)] were given to two requests" in problems


def test_rows_of_a_segment_in_another_order_than_the_request_had() -> None:
    history = History(requests=[request((A0, B0), attempt("acknowledged", (0, 0, 2)))])
    assert judge(history, [found(0, 0, B0), found(0, 1, A0)]) == ["shuffled: p's rows stand at [1, 0] of segment 0"]


def test_an_acknowledgement_of_fewer_messages_than_were_sent() -> None:
    problems = judge(History(requests=[request((A0, B0), attempt("acknowledged", (0, 0, 1)))]), READ[:1])
    assert "miscounted: p None of 2 messages was told ((0, 0, 1),)" in problems


def test_a_retried_request_is_there_once() -> None:
    retried = request((A0,), attempt("unknown"), attempt("failed"), attempt("acknowledged", (0, 0, 1)), sequence=1)
    history = History(requests=[retried])
    assert judge(history, [found(0, 0, A0)]) == []
    assert f"doubled: {A0} is there 2 times" in judge(history, [found(0, 0, A0), found(0, 1, A0)])
    assert judge(history, []) == [f"lost: {A0} was acknowledged and is not there"]


def test_a_repeat_that_is_answered_with_other_positions() -> None:
    first, second = attempt("acknowledged", (0, 0, 1)), attempt("acknowledged", (0, 1, 1))
    assert judge(History(requests=[request((A0,), first, first, sequence=1)]), READ[:1]) == []
    problems = judge(History(requests=[request((A0,), first, second, sequence=1)]), READ[:1])
    assert problems == ["answered otherwise: p 1 of 1 messages was told ((0, 0, 1),), then ((0, 1, 1),)"]


def test_a_repeat_that_is_refused() -> None:
    refusal = Attempt("http://other", 1.0, 2.0, "failed", final=True, detail="409")
    history = History(requests=[request((A0,), attempt("acknowledged", (0, 0, 1)), refusal, sequence=1)])
    assert judge(history, READ[:1]) == ["repeat refused: p 1 of 1 messages: 409"]


def test_a_request_that_was_refused_after_an_unknown_attempt_may_be_there() -> None:
    history = History(requests=[request((A0,), attempt("unknown"), attempt("failed", final=True), sequence=1)])
    assert judge(history, []) == []
    assert judge(history, READ[:1]) == []


def test_messages_of_another_topic_do_not_count() -> None:
    other = Request("p", "other", (A0,), [attempt("acknowledged", (0, 0, 1))])
    assert judge(History(requests=[other]), []) == []
    assert judge(History(requests=[other]), READ[:1]) == [f"never sent: {A0.value!r}"]
