"""Histories in which two witnesses contradict each other, each bad in one way."""

from tests.cluster.checker.divergence import backwards, divergent, entered_early
from tests.cluster.checker.history import Attempt, Found, Gap, Position, Reader, Request, Sent, Visit

B0 = "http://b0"


def found(segment: int, offset: int, value: str) -> Found:
    return Found(segment, offset, b"k", value.encode())


def reader(name: str, *messages: Found, told: tuple[Gap, ...] = ()) -> Reader:
    return Reader(name, "t", "stream", visits=[Visit(B0, 0, 0.0, found=list(messages), told=list(told))])


def request(number: int, started_seconds: float, ended_seconds: float, *positions: Position, rows: int = 1) -> Request:
    messages = tuple(Sent("k", number + row) for row in range(rows))
    return Request("p", "t", messages, [Attempt(B0, started_seconds, ended_seconds, "acknowledged", positions)])


def test_one_offset_has_one_message() -> None:
    one, other = reader("one", found(0, 0, "k 0")), reader("other", found(0, 0, "k 1"))
    assert list(divergent([one, one], [])) == []
    assert list(divergent([one, other], [])) == ["divergent: other has b'k 1' at (0, 0), where one has b'k 0'"]


def test_what_a_producer_was_told_is_what_readers_get() -> None:
    told = request(0, 0.0, 1.0, (0, 5, 2), rows=2)
    assert list(divergent([reader("r", found(0, 5, "k 0"), found(0, 6, "k 1"))], [told])) == []
    assert list(divergent([reader("r", found(0, 6, "k 7"))], [told])) == [
        "divergent: r has b'k 7' at (0, 6), where the answer to p has b'k 1'"
    ]


def test_rows_of_several_segments_say_nothing_of_single_offsets() -> None:
    told = request(0, 0.0, 1.0, (0, 5, 1), (1, 5, 1), rows=2)
    assert list(divergent([reader("r", found(0, 5, "k 1"))], [told])) == []


def test_offsets_grow_with_time() -> None:
    first, second = request(0, 0.0, 1.0, (0, 5, 1)), request(1, 2.0, 3.0, (0, 4, 1))
    (complaint,) = backwards([second, first])
    assert complaint.startswith(
        "backwards: p Sent(key='k', number=1) is at 4 of segment 0, behind p Sent(key='k', numb"
    )
    assert list(backwards([first, request(1, 2.0, 3.0, (0, 6, 1)), request(2, 2.0, 3.0, (1, 0, 1))])) == []
    # Both were under way: either may come first.
    assert list(backwards([first, request(1, 0.5, 3.0, (0, 4, 1))])) == []


def test_a_request_that_was_tried_before_counts_from_its_first_try() -> None:
    late = request(1, 2.0, 3.0, (0, 4, 1))
    late.attempts.insert(0, Attempt(B0, 0.0, 0.5, "unknown"))
    assert list(backwards([request(0, 0.0, 1.0, (0, 5, 1)), late])) == []


ENDS, BEFORE = {0: 2, 1: 1}, {1: (0,)}


def test_a_successor_begins_where_its_predecessor_ends() -> None:
    whole = reader("r", found(0, 0, "k 0"), found(0, 1, "k 1"), found(1, 0, "k 2"))
    assert list(entered_early(whole, BEFORE, ENDS)) == []
    hasty = reader("r", found(0, 0, "k 0"), found(1, 0, "k 2"), found(0, 1, "k 1"))
    assert list(entered_early(hasty, BEFORE, ENDS)) == ["entered early: r was given 1-0 with segment 0 read to 1 of 2"]


def test_a_reader_that_was_told_of_a_gap_goes_on_behind_it() -> None:
    told = Gap("file", 0, 1, 2)
    passed = reader("r", found(0, 0, "k 0"), found(1, 0, "k 2"), told=(told,))
    assert list(entered_early(passed, BEFORE, ENDS)) == []


def test_a_reader_that_began_later_owes_nothing_to_what_was_before() -> None:
    late = reader("r", found(1, 0, "k 2"))
    late.start, late.positions = "latest", {1: 0}
    assert list(entered_early(late, BEFORE, ENDS)) == []
    # Segment 1 has come since, so it had to be read.
    late.positions = {0: 2}
    late.visits = [Visit(B0, 0, 0.0, found=[found(2, 0, "k 3")])]
    assert list(entered_early(late, {1: (0,), 2: (1,)}, {0: 2, 1: 1, 2: 1})) == [
        "entered early: r was given 2-0 with segment 1 read to 0 of 1"
    ]
