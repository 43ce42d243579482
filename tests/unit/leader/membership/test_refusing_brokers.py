"""Who is gone although its session goes on: what it takes, what ends it, and who gets segments again."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from leader.membership.coordinator import BrokerInfo
from leader.membership.refusing_brokers import ALONE_FACTOR, MOST_DOUBLINGS, RefusingBrokers, Sight, agreed

PATIENCE_SECONDS, SESSION_SECONDS = 1.0, 10.0
STEP_SECONDS = 0.25
DEAD = BrokerInfo("b.1", "http://b", "", "1")


class Case:
    """One broker, looked at every quarter of a second."""

    def __init__(self) -> None:
        self.refusing = RefusingBrokers(PATIENCE_SECONDS)
        self.now_seconds = 100.0
        self.suspect()

    def suspect(self) -> None:
        self.refusing.suspect(DEAD, now_seconds=self.now_seconds)

    def look(self, *sights: Sight, alone: bool = False) -> None:
        for sight in sights:
            self.refusing.looked(
                DEAD.id, sight, alone=alone, now_seconds=self.now_seconds, session_seconds=SESSION_SECONDS
            )
            self.now_seconds += STEP_SECONDS

    def looks_until_gone(self, *, alone: bool = False) -> int:
        looks = 0
        while not self.refusing.gone:
            self.look("refused", alone=alone)
            looks += 1
        return looks

    @property
    def is_watched(self) -> bool:
        return bool(self.refusing.watched)


@pytest.fixture
def case() -> Case:
    return Case()


@pytest.mark.parametrize(
    ("own", "witnesses", "alone", "together"),
    [
        ("refused", ["refused"], False, "refused"),
        ("refused", ["unclear", "refused", "unclear"], False, "refused"),
        ("refused", ["refused", "answered"], False, "answered"),
        ("answered", ["refused"], False, "answered"),
        ("refused", [], False, "unclear"),
        ("refused", ["unclear", "unclear"], False, "unclear"),
        ("unclear", ["refused", "refused"], False, "unclear"),
        ("unclear", ["answered"], False, "answered"),
        ("refused", [], True, "refused"),
        ("unclear", [], True, "unclear"),
        ("answered", [], True, "answered"),
    ],
)
def test_two_must_be_refused_and_nobody_answered(
    own: Sight, witnesses: Sequence[Sight], alone: bool, together: Sight
) -> None:
    assert agreed(own, witnesses, alone=alone) == together


def test_it_takes_refusals_for_as_long_as_the_patience(case: Case) -> None:
    case.look("refused", "refused", "refused", "refused")
    assert (case.refusing.gone, case.refusing.unfit) == (set(), set())
    case.look("refused")
    assert (case.refusing.gone, case.refusing.unfit) == ({DEAD.id}, {DEAD.id})


def test_one_look_is_not_enough_however_late_the_next_one_is(case: Case) -> None:
    case.look("refused")
    case.now_seconds += 100
    assert case.refusing.gone == set()


def test_a_leader_alone_waits_longer(case: Case) -> None:
    assert case.looks_until_gone(alone=True) == 1 + ALONE_FACTOR * PATIENCE_SECONDS / STEP_SECONDS


def test_a_single_answer_ends_it(case: Case) -> None:
    case.look("refused", "refused", "refused", "answered", "refused", "refused", "refused", "refused", "refused")
    assert not case.is_watched and case.refusing.gone == set()


def test_a_time_out_is_no_refusal(case: Case) -> None:
    case.look(*(["refused"] * 4 + ["unclear"]) * 5)
    assert case.is_watched and case.refusing.gone == set()


def test_what_stays_unclear_is_looked_at_for_a_session(case: Case) -> None:
    case.look(*["unclear"] * int(SESSION_SECONDS / STEP_SECONDS))
    assert case.is_watched
    case.look("unclear")
    assert not case.is_watched


def test_one_that_is_back_gets_segments_after_a_session(case: Case) -> None:
    case.looks_until_gone()
    case.look("answered")
    assert (case.refusing.gone, case.refusing.unfit) == (set(), {DEAD.id})
    case.look(*["answered"] * int(SESSION_SECONDS / STEP_SECONDS - 1))
    assert case.refusing.unfit == {DEAD.id}
    case.look("answered")
    assert case.refusing.unfit == set() and not case.is_watched


@pytest.mark.parametrize("sight", ["unclear", "refused"])
def test_one_that_is_back_must_answer_all_the_time(case: Case, sight: Sight) -> None:
    case.looks_until_gone()
    for _ in range(3):
        case.look(*["answered"] * 20, sight)
    assert case.refusing.unfit == {DEAD.id} and case.refusing.gone == set()


def test_a_listener_that_comes_and_goes_gets_twice_as_long_each_time(case: Case) -> None:
    looks = []
    for _ in range(MOST_DOUBLINGS + 2):
        looks.append(case.looks_until_gone())
        case.look(*["answered"] * 41)
        assert not case.is_watched
        case.suspect()
    doublings = [*range(MOST_DOUBLINGS + 1), MOST_DOUBLINGS]
    assert looks == [1 + 2**n * PATIENCE_SECONDS / STEP_SECONDS for n in doublings]


def test_being_suspected_again_takes_no_segments(case: Case) -> None:
    """Only one that was found gone this time is unfit."""
    case.looks_until_gone()
    case.look(*["answered"] * 41)
    case.suspect()
    case.look("refused")
    assert case.refusing.unfit == set()


def test_the_next_incarnation_is_another_broker(case: Case) -> None:
    case.looks_until_gone()
    case.refusing.keep_only([replace(DEAD, id="b.2")])
    assert (case.refusing.watched, case.refusing.gone, case.refusing.unfit) == ([], set(), set())


def test_an_end_of_the_session_ends_it(case: Case) -> None:
    case.look("refused", "refused")
    case.refusing.keep_only([])
    assert not case.is_watched
    case.look("refused", "refused", "refused", "refused")
    assert case.refusing.gone == set()


def test_one_that_announces_something_else_lives(case: Case) -> None:
    case.look("refused", "refused", "refused")
    case.refusing.keep_only([replace(DEAD, draining=True)])
    assert not case.is_watched


def test_one_that_was_gone_and_announces_something_else_lives_and_is_unfit(case: Case) -> None:
    case.looks_until_gone()
    moved = replace(DEAD, url="http://elsewhere")
    case.refusing.keep_only([moved])
    assert (case.refusing.watched, case.refusing.gone, case.refusing.unfit) == ([moved], set(), {DEAD.id})
    assert case.looks_until_gone() == 1 + 2 * PATIENCE_SECONDS / STEP_SECONDS


def test_what_is_unchanged_stays(case: Case) -> None:
    case.look("refused", "refused", "refused", "refused")
    case.refusing.keep_only([DEAD])
    case.look("refused")
    assert case.refusing.gone == {DEAD.id}


def test_it_tells_for_how_long_it_was_refused(case: Case) -> None:
    def refused_seconds() -> float:
        return case.refusing.refused_seconds(DEAD.id, now_seconds=case.now_seconds)

    assert refused_seconds() == 0
    case.look("refused", "refused")
    assert refused_seconds() == 2 * STEP_SECONDS
    case.look("unclear")
    assert refused_seconds() == 0
    assert case.refusing.refused_seconds("nobody", now_seconds=0) == 0


def test_a_new_leader_begins_anew(case: Case) -> None:
    case.looks_until_gone()
    case.refusing.clear()
    assert (case.refusing.watched, case.refusing.gone, case.refusing.unfit) == ([], set(), set())
    case.suspect()
    assert case.looks_until_gone() == 1 + PATIENCE_SECONDS / STEP_SECONDS


def test_whoever_is_looked_at_is_doubtful_until_it_answers(case: Case) -> None:
    assert case.refusing.doubtful == {DEAD.id}
    case.looks_until_gone()
    assert case.refusing.doubtful == {DEAD.id}
    case.look("answered")
    assert case.refusing.doubtful == set()
    case.look("unclear")
    assert case.refusing.doubtful == {DEAD.id}
