"""Which files are rolled up next: pure decisions over what an index holds."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.upkeep.rollup import MAX_FILES, MIN_FILES, NEWEST_KEPT, SETTLED_BYTES, plan_rollup

FAR = 2**62
MIB = 1024 * 1024


def owned(base: int, size_bytes: int = 3000, count: int = 1) -> FileFacts:
    return FileFacts(FileName(base), base + count, size_bytes, 1, 1, start=base)


def rolled(base: int, end: int, size_bytes: int) -> FileFacts:
    return FileFacts(FileName(base, end), end, size_bytes, 1, 1, start=base)


def plan(files: list[FileFacts], *, newest_kept: int = 0, min_files: int = MIN_FILES) -> list[FileFacts]:
    return list(plan_rollup(files, rollup_bytes=64 * MIB, newest_kept=newest_kept, min_files=min_files, ripe_us=FAR))


def test_too_few_small_files_are_left_alone():
    assert plan([owned(base) for base in range(7)]) == []
    assert len(plan([owned(base) for base in range(8)])) == 8
    assert len(plan([owned(base) for base in range(2)], min_files=2)) == 2
    assert plan([], newest_kept=4) == []


def test_the_newest_are_left_alone():
    files = [owned(base) for base in range(20)]
    assert plan(files, newest_kept=4) == files[:16]
    assert plan(files[:11], newest_kept=4) == []
    assert plan(files[:3], newest_kept=4, min_files=2) == []


def test_earlier_roll_ups_join_when_they_are_not_much_larger():
    small = [owned(base) for base in range(100, 110)]
    assert plan([rolled(0, 100, 60_000), *small])[0] == rolled(0, 100, 60_000)
    assert plan([rolled(0, 100, 60_001), *small]) == small


def test_earlier_roll_ups_join_one_after_another():
    older, newer = rolled(0, 50, 200_000), rolled(50, 100, 60_000)
    small = [owned(base, 5000) for base in range(100, 110)]
    assert plan([older, newer, *small]) == [older, newer, *small]
    assert plan([rolled(0, 50, 250_000), newer, *small]) == [newer, *small]


def test_large_files_stay_as_they_are():
    files = [owned(base, 4 * MIB) for base in range(20)]
    assert plan(files) == []
    small = [owned(base) for base in range(20, 30)]
    assert plan([*files, *small]) == small
    assert plan([*small[:5], owned(25, 5 * MIB), *[owned(base) for base in range(26, 31)]]) == []


@pytest.mark.parametrize(
    ("size_bytes", "taken"), [(SETTLED_BYTES - 1, 9), (SETTLED_BYTES, 8)], ids=["below", "settled"]
)
def test_a_settled_file_is_never_written_again_however_large_roll_ups_may_be(size_bytes: int, taken: int):
    """Tables refer to it."""
    files = [rolled(0, 100, size_bytes), *(owned(base, 20 * MIB) for base in range(100, 108))]
    run = plan_rollup(files, rollup_bytes=1024 * MIB, newest_kept=0, min_files=8, ripe_us=FAR)
    assert len(run) == taken


def test_a_roll_up_is_bounded_in_files_and_bytes():
    many = [owned(base) for base in range(3 * MAX_FILES)]
    assert plan(many) == many[:MAX_FILES]
    heavy = [owned(base, 3 * MIB) for base in range(30)]
    assert sum(facts.size_bytes for facts in plan(heavy)) <= 64 * MIB
    assert len(plan(heavy)) == 21


def settle(index: SegmentIndex, *, newest_kept: int, min_files: int) -> Iterator[list[FileFacts]]:
    """Roll up until there is nothing more to do, as the real one would; yields each run."""
    while run := plan_rollup(
        index.files, rollup_bytes=64 * MIB, newest_kept=newest_kept, min_files=min_files, ripe_us=FAR
    ):
        yield list(run)
        size_bytes = 2000 + sum(max(facts.size_bytes - 2000, 0) for facts in run)
        index.supersede(rolled(run[0].base, run[-1].end, size_bytes), 1)


@pytest.mark.parametrize("burst", [1, 7, 40, 500])
def test_20_000_single_messages_settle_at_20_files_and_cost_little(burst: int):
    index = SegmentIndex()
    written = 0
    for base in range(20_000):
        index.append(owned(base, 3000))
        if base % burst == 0:
            for run in settle(index, newest_kept=NEWEST_KEPT, min_files=MIN_FILES):
                written += sum(facts.count for facts in run)
    for run in settle(index, newest_kept=NEWEST_KEPT, min_files=MIN_FILES):
        written += sum(facts.count for facts in run)
    assert len(index.files) <= 20
    assert written <= 20_000 * 12


@given(st.lists(st.integers(100, 20 * MIB), max_size=300), st.integers(1, 60), st.booleans())
def test_rolling_up_ends_and_keeps_the_chain(sizes: list[int], burst: int, sealed: bool):
    index = SegmentIndex()
    for base, size_bytes in enumerate(sizes):
        index.append(owned(base, size_bytes))
        if base % burst == 0:
            list(settle(index, newest_kept=NEWEST_KEPT, min_files=MIN_FILES))
    if sealed:
        index.append(FileFacts(FileName(index.end), index.end, 900, 0, 0, sealed=True, start=index.end))
        list(settle(index, newest_kept=1, min_files=2))
    assert [facts.start for facts in index.files[1:]] == [facts.end for facts in index.files[:-1]]
    assert index.size_bytes == sum(facts.size_bytes for facts in index.files)
    large = sum(size_bytes >= 4 * MIB for size_bytes in sizes)
    few_mib = sum(sizes) / (4 * MIB)
    assert len(index.files) <= 5 + MIN_FILES * (large + 1) + 3 * math.log2(2 + sum(sizes)) + 8 * few_mib


def test_what_is_young_and_not_tiny_stays_as_it_is():
    young = [FileFacts(FileName(n), n + 1, 400_000, 100 + n, 100 + n, start=n) for n in range(40)]
    assert not plan_rollup(young, rollup_bytes=64 * MIB, newest_kept=4, min_files=8, ripe_us=99)
    ripe = plan_rollup(young, rollup_bytes=64 * MIB, newest_kept=4, min_files=8, ripe_us=119)
    assert [facts.base for facts in ripe] == list(range(20))
    tiny = [FileFacts(FileName(n), n + 1, 4_000, 100 + n, 100 + n, start=n) for n in range(40)]
    assert len(plan_rollup(tiny, rollup_bytes=64 * MIB, newest_kept=4, min_files=8, ripe_us=0)) == 36
