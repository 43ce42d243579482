"""Who is next of each key, and who waits aside."""

from collections import Counter

from groups.offset_set import OffsetSet
from groups.queue.key_lines import KEY_BATCH, KeyLines

ALL = OffsetSet([(0, 1_000_000)])


def hot(count: int) -> list[bytes | str | None]:
    return [b"hot"] * count


def test_who_is_far_behind_in_his_line_waits_at_once() -> None:
    lines = KeyLines()
    keys: list[bytes | str | None] = [*hot(KEY_BATCH), b"a", *hot(5), None, b"b"]
    assert lines.add(0, 10, keys, ALL) == [(10 + KEY_BATCH + 1, 10 + KEY_BATCH + 6)]
    # Of the next ones, all do.
    assert lines.add(0, 10 + len(keys), hot(3), ALL) == [(10 + len(keys), 13 + len(keys))]
    assert lines.count == KEY_BATCH + 5 + 2 + 3
    gone = Counter[int]()
    assert all(lines.may_go(0, 10 + offset, gone) for offset in range(KEY_BATCH + 1))


def test_who_may_not_wait_stays_where_he_is() -> None:
    lines = KeyLines()
    resting = OffsetSet([(0, KEY_BATCH + 2), (KEY_BATCH + 3, 1_000)])
    assert lines.add(0, 0, hot(KEY_BATCH + 5), resting) == [
        (KEY_BATCH, KEY_BATCH + 2),
        (KEY_BATCH + 3, KEY_BATCH + 5),
    ]
    assert not lines.may_go(0, KEY_BATCH + 2, Counter())  # he has a key, and is not next
    assert lines.done([(0, 0, KEY_BATCH)]) == {0: [(KEY_BATCH, KEY_BATCH + 2)]}  # not those behind him
    assert lines.may_go(0, KEY_BATCH, Counter())


def test_when_those_ahead_are_done_as_many_come_as_one_claim_has() -> None:
    lines = KeyLines()
    lines.add(0, 0, hot(3 * KEY_BATCH), ALL)
    lines.add(4, 0, hot(KEY_BATCH), ALL)  # a successor
    assert lines.done([(0, 0, KEY_BATCH - 1)]) == {}
    assert lines.done([(0, KEY_BATCH - 1, KEY_BATCH)]) == {0: [(KEY_BATCH, 2 * KEY_BATCH)]}
    assert lines.done([(0, KEY_BATCH, 2 * KEY_BATCH)]) == {0: [(2 * KEY_BATCH, 3 * KEY_BATCH)]}
    assert lines.done([(0, 2 * KEY_BATCH, 3 * KEY_BATCH)]) == {4: [(0, KEY_BATCH)]}
    assert lines.done([(4, 0, KEY_BATCH)]) == {} and lines.count == 0


def test_what_waits_takes_hardly_any_memory() -> None:
    """A key with a million messages takes a number for each, and what waits is told by ranges."""
    lines = KeyLines()
    lines.add(0, 0, hot(100_000), ALL)
    assert lines.parked[0].range_count == 1 and len(lines._key_of) == KEY_BATCH
