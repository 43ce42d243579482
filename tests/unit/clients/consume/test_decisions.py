import pytest

from braidmq.consume.claim_size import ClaimSize
from braidmq.consume.decisions import MOST_PARTS, Ack, Part, Release, Request, Taken, parts_of, reason_of, requests_of

LATER = Release("no", delay_seconds=60)


def test_acks_become_ranges_of_their_claims() -> None:
    messages = [Taken("b", 7), Taken("a", 2), Taken("a", 0), Taken("a", 1), Taken("a", 4), Taken("b", 8)]
    assert parts_of(messages) == [Part("a", 0, 3), Part("a", 4, 5), Part("b", 7, 9)]


def test_each_outcome_is_a_request() -> None:
    decided = [(Taken("a", 0), Ack()), (Taken("a", 1), LATER), (Taken("a", 2), Ack()), (Taken("b", 0), LATER)]
    assert requests_of(decided) == [
        Request(Ack(), [Part("a", 0, 1), Part("a", 2, 3)]),
        Request(LATER, [Part("a", 1, 2), Part("b", 0, 1)]),
    ]


def test_a_request_is_no_larger_than_brokers_take() -> None:
    sizes = [len(each.parts) for each in requests_of((Taken("a", n * 2), Ack()) for n in range(MOST_PARTS + 1))]
    assert sizes == [MOST_PARTS, 1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no such customer"), "ValueError: no such customer"),
        (KeyError(), "KeyError"),
        (ValueError("x" * 1000), f"ValueError: {'x' * 488}"),
        (ValueError("\ud800"), "ValueError: ?"),
    ],
    ids=["told", "silent", "long", "no UTF-8"],
)
def test_a_reason_is_what_a_broker_takes(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_who_is_slow_claims_nothing_ahead() -> None:
    size, now_seconds = ClaimSize(1000), 0.0
    for _ in range(5):
        assert size.wanted(1, 0, now_seconds) == 1
        size.answered(now_seconds)
        size.took(1)
        now_seconds += 10
        assert size.wanted(0, 0, now_seconds) == 0


def test_who_is_fast_claims_more_and_more_ahead_up_to_the_most() -> None:
    size, now_seconds, claimed = ClaimSize(1000), 0.0, 1
    asked: list[int] = []
    for _ in range(6):
        size.answered(now_seconds)
        size.took(claimed)
        now_seconds += claimed / 10_000
        claimed = size.wanted(1, 0, now_seconds)
        asked.append(claimed)
    assert asked == [9, 65, 513, 1001, 1001, 1001]


def test_the_next_claim_is_made_when_half_of_what_is_ahead_is_gone() -> None:
    size = ClaimSize(100)
    size.answered(0.0)
    size.took(100)
    assert size.wanted(1, 0, 1.0) == 9  # 100 a second are 50 ahead; it grows eightfold at the most
    size.answered(1.0)
    size.took(8)
    assert (size.wanted(0, 4, 1.5), size.is_half_gone(4)) == (0, True)
    assert size.wanted(0, 3, 1.5) == 5
