"""Whose turn it is."""

from collections import Counter
from itertools import count

from mq.limits.fair_line import CREDIT_SECONDS, STARVED_SECONDS, FairLine

STEP_SECONDS = 0.001


def take(line: FairLine[str], turns: int, *, cost_seconds: float = STEP_SECONDS) -> list[str]:
    """Who got so many turns. Each asks again at once."""
    taken = []
    for _ in range(turns):
        asker, waiter = line.pop()
        line.charge(asker, cost_seconds)
        line.add(asker, waiter)
        taken.append(waiter)
    return taken


def test_who_asks_for_much_at_once_gets_no_more_than_who_asks_for_one_thing() -> None:
    line: FairLine[str] = FairLine()
    for _ in range(100):
        line.add("a", "greedy")
    line.add("b", "modest")
    assert Counter(take(line, 60))["modest"] >= 29
    assert len(line) == 101


def test_who_has_had_much_waits_for_about_one_turn_of_each_other() -> None:
    line: FairLine[str] = FairLine()
    line.add("busy", "busy")
    take(line, 1000)
    line.pop()
    for number in range(200):
        line.add(number, "others")
    take(line, 200)
    line.add("busy", "busy")
    assert "busy" in take(line, 3 * 200)


def test_who_comes_now_and_then_goes_before_those_who_come_back_again_and_again() -> None:
    line: FairLine[str] = FairLine()
    for number in range(24):
        line.add(number, "again")
    take(line, 24 * 20)
    line.add("new", "new")
    assert take(line, 2) == ["new"] * 2
    taken = take(line, 480)
    assert 15 <= Counter(taken)["new"] <= 30, "and has no more than his share once he stays"


def test_newcomers_who_never_end_starve_nobody() -> None:
    """Clients that open a connection for each request: each of them has had nothing yet."""
    line: FairLine[str] = FairLine()
    line.charge("stays", STEP_SECONDS)
    line.add("stays", "stays")
    for number in range(32):
        line.add(number, "new")
    served_seconds, numbers = 0.0, count(32)
    while served_seconds < 1:
        asker, waiter = line.pop()
        if waiter == "stays":
            break
        line.charge(asker, STEP_SECONDS / 10)
        line.add(next(numbers), "new")
        served_seconds += STEP_SECONDS / 10
    assert served_seconds <= STARVED_SECONDS * 33 + STEP_SECONDS
    assert len(line) == 32


def test_nobody_saves_up_turns() -> None:
    line: FairLine[str] = FairLine()
    line.add("early", "early")
    line.pop()
    line.charge("early", STEP_SECONDS)
    line.add("busy", "busy")
    take(line, 1000)
    line.add("early", "early")
    most = round(CREDIT_SECONDS / STEP_SECONDS) + 1
    assert Counter(take(line, 20))["early"] <= 10 + most


def test_those_who_went_away_are_forgotten() -> None:
    line: FairLine[int] = FairLine()
    for number in range(20_000):
        line.add(number, number)
        asker, _ = line.pop()
        line.charge(asker, STEP_SECONDS)
        line.add("stays", number)
        asker, _ = line.pop()
        line.charge(asker, STEP_SECONDS)
    assert line.remembered < 3000
