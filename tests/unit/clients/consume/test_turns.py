"""Which claimed message is next."""

from datetime import UTC, datetime
from typing import Any

from braidmq.consume.claims import Claim
from braidmq.consume.delivery import BaseDelivery
from braidmq.consume.turns import Turns
from braidmq.message import Message


def delivery(offset: int, key: bytes | None = b"a", *, sure_until_seconds: float = 100.0) -> BaseDelivery:
    message = Message("t", 0, offset, datetime.now(UTC), key, b"")
    desk: Any = None
    made = BaseDelivery(message, Claim("c", 0, 0, 100, 1), desk)
    made.turn_key, made.sure_until_seconds = key, sure_until_seconds
    return made


def turns_of(*deliveries: BaseDelivery) -> Turns:
    turns = Turns()
    for each in deliveries:
        turns.add(each)
    return turns


def test_one_of_a_key_has_its_turn_at_a_time() -> None:
    first, second, other, alone = delivery(0), delivery(1), delivery(2, b"b"), delivery(3, None)
    turns = turns_of(first, second, other, alone)
    assert [turns.take(0) for _ in range(4)] == [first, other, alone, None]
    assert turns.over(other, goes_on=True) == turns.over(alone, goes_on=True) == [] and turns.take(0) is None
    assert turns.over(first, goes_on=True) == [] and turns.take(0) is second
    # A turn is over once.
    assert turns.over(first, goes_on=False) == []


def test_a_turn_that_does_not_go_on_gives_back_what_stands_behind() -> None:
    first, second, third, later = map(delivery, range(4))
    turns = turns_of(first, second, third)
    assert turns.take(0) is first and turns.over(first, goes_on=False) == [second, third]
    turns.add(later)
    assert turns.take(0) is later


def test_giving_up_leaves_what_is_begun() -> None:
    first, second, third, other = delivery(0), delivery(1), delivery(2), delivery(3, b"b")
    turns = turns_of(first, second, other)
    assert turns.take(0) is first
    assert turns.give_up(second) == [second] and turns.give_up(other) == [other]
    turns.add(third)
    assert turns.take(0) is None
    assert turns.over(first, goes_on=True) == [] and turns.take(0) is third


def test_what_has_no_turn_is_given_up_alone() -> None:
    first, second = delivery(0, None), delivery(1, None)
    turns = turns_of(first, second)
    assert turns.give_up(first) == [first] and turns.give_up(first) == [] and turns.take(0) is second


def test_clearing_leaves_what_is_begun() -> None:
    first, second, other, behind, alone = (
        delivery(0),
        delivery(1),
        delivery(2, b"b"),
        delivery(3, b"b"),
        delivery(4, None),
    )
    turns = turns_of(first, second, other, behind, alone)
    assert turns.take(0) is first
    assert set(turns.clear()) == {second, other, behind, alone} and turns.take(0) is None
    assert turns.over(first, goes_on=True) == []


def test_what_may_have_been_lost_is_not_begun() -> None:
    first, second = delivery(0, sure_until_seconds=5), delivery(1, None)
    turns = turns_of(first, second)
    assert turns.take(5) is None and turns.must_ask(5) and not turns.must_ask(4)
    first.sure_until_seconds = 10
    assert turns.take(5) is first and turns.take(5) is second
