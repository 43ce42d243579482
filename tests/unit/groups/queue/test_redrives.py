"""Which dead letters were redriven: added up, written down and read again."""

import orjson

from groups.queue.redrives import Redrives
from groups.records import Done, Redriven, Redriving


def redriving(sequence: int, *letters: Done, passed: tuple[Done, ...] = ()) -> Redriving:
    return Redriving(at=1, topic="t.dead", sequence=sequence, letters=list(letters), passed=list(passed))


def test_what_is_settled_is_skipped() -> None:
    redrives = Redrives("01J")
    redrives.add(redriving(0, Done(0, 2, 4), passed=(Done(0, 0, 2), Done(1, 5, 6))))
    assert redrives.pending is not None and redrives.next_sequence == 1
    assert [redrives.is_settled("t.dead", 0, offset) for offset in range(5)] == [True, True, True, True, False]
    assert (redrives.skip("t.dead", 0, 0), redrives.skip("t.dead", 0, 4), redrives.skip("other", 0, 0)) == (4, 4, 0)
    redrives.add(Redriven(at=2))
    assert redrives.pending is None and redrives.range_count == 2


def test_nothing_waits_for_letters_that_are_only_passed() -> None:
    redrives = Redrives("01J")
    redrives.add(redriving(4, passed=(Done(0, 0, 2),)))
    assert redrives.pending is None and redrives.next_sequence == 5


def test_what_the_topic_has_no_more_is_forgotten() -> None:
    redrives = Redrives("01J")
    redrives.add(redriving(0, Done(0, 0, 2), Done(1, 0, 9), Done(2, 0, 3)))
    redrives.forget("t.dead", {1: 5, 2: 3})
    assert redrives.range_count == 1 and not redrives.is_settled("t.dead", 1, 4) and redrives.is_settled("t.dead", 1, 5)


def test_it_is_the_same_behind_a_snapshot() -> None:
    redrives = Redrives("01J")
    redrives.add(redriving(7, Done(0, 2, 4), passed=(Done(1, 5, 6),)))
    again = Redrives.from_plain(orjson.loads(orjson.dumps(redrives.to_plain(), default=tuple)))
    assert again.to_plain() == redrives.to_plain() and again.pending == redrives.pending
