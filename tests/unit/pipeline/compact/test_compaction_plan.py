from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_log import SegmentRef
from filer.topic.topic_state import Segment
from filer.upkeep.rollup import NEWEST_KEPT, SETTLED_BYTES, plan_rollup
from pipeline.compact.choices import DEFAULT_ROLLUP_BYTES, MOST_ROLLUP_BYTES
from pipeline.compact.compaction_plan import movable, plan_compaction, settled
from pipeline.topic_files import LiveFile, SegmentFiles, in_parts

REF = SegmentRef("t", 0)


def files_of(sizes: Sequence[int], *, modified_us: Sequence[int] = ()) -> list[LiveFile]:
    """One message each."""
    times = modified_us or [0] * len(sizes)
    return [LiveFile(REF, FileName(index), index, index + 1, size, times[index]) for index, size in enumerate(sizes)]


def listed(files: Sequence[LiveFile], *, seal_offset: int | None = None, sealed: bool = True) -> SegmentFiles:
    segment = Segment(
        id=0, start_slot=0, stop_slot=65_536, brokers=("b",), opened_us=1, reason="create",
        state="sealed" if sealed else "open", end_offset=len(files) if sealed else None, seal_offset=seal_offset,
    )  # fmt: skip
    return SegmentFiles(segment, REF, len(files), tuple(files))


def planned(sizes: Sequence[int], *, rollup_bytes: int = 100, most_files: int = 50) -> list[list[int]]:
    """The sizes that go together."""
    runs = plan_compaction(files_of(sizes), rollup_bytes=rollup_bytes, most_files=most_files)
    return [[file.size_bytes for file in run] for run in runs]


def test_small_files_are_packed_until_one_more_would_be_too_much():
    assert planned([40, 40, 40, 40, 40]) == [[40, 40], [40, 40]]
    assert planned([1] * 120) == [[1] * 50, [1] * 50, [1] * 20]


def test_large_files_stay_and_part_the_small_ones():
    assert planned([10, 10, 50, 10, 10, 10]) == [[10, 10], [10, 10, 10]]
    assert planned([50, 60, 99, 500]) == []
    assert planned([10, 50, 10]) == []


def test_nothing_gives_nothing():
    assert planned([]) == [] and planned([7]) == []


@given(st.lists(st.integers(1, 200), max_size=80))
def test_runs_follow_each_other_fit_and_make_fewer_files(sizes: list[int]):
    runs = plan_compaction(files_of(sizes), rollup_bytes=100, most_files=50)
    taken = [file.start for run in runs for file in run]
    assert taken == sorted(set(taken))
    for run in runs:
        assert len(run) > 1 and sum(file.size_bytes for file in run) <= 100
        assert [file.start for file in run] == list(range(run[0].start, run[-1].stop))


@given(st.lists(st.integers(1, 200), max_size=80))
def test_it_comes_to_an_end_where_no_two_neighbours_are_small(sizes: list[int]):
    for _ in range(len(sizes) + 1):
        runs = {run[0].start: run for run in plan_compaction(files_of(sizes), rollup_bytes=100, most_files=50)}
        if not runs:
            break
        covered = {file.start for run in runs.values() for file in run[1:]}
        sizes = [
            sum(file.size_bytes for file in runs[index]) if index in runs else size
            for index, size in enumerate(sizes)
            if index not in covered
        ]
    assert all(a >= 50 or b >= 50 for a, b in pairwise(sizes))


SIZES = st.one_of(st.integers(1, 20), st.integers(20, 400)).map(lambda mib: mib * 1024 * 1024)


@given(
    st.lists(SIZES, max_size=12),
    st.lists(st.tuples(st.integers(1, MOST_ROLLUP_BYTES), st.floats(0.3, 1), st.booleans()), max_size=6),
)
def test_what_is_settled_is_never_written_again(sizes: list[int], roll_ups: list[tuple[int, float, bool]]) -> None:
    """Whichever sizes compactions and brokers make, one after the other, and however well it compresses."""
    names = [FileName(index) for index in range(len(sizes))]
    files = [LiveFile(REF, name, name.base, name.base + 1, size, 0) for name, size in zip(names, sizes, strict=True)]
    stay = settled(listed(files, seal_offset=len(files)))
    for rollup_bytes, compression, by_broker in roll_ups:
        if by_broker:
            facts = [FileFacts(each.name, each.stop, each.size_bytes, 0, 0, start=each.start) for each in files]
            run = plan_rollup(facts, rollup_bytes=rollup_bytes, newest_kept=0, min_files=2, ripe_us=0)
            runs = [[file for file in files if run[0].base <= file.start < run[-1].end]] if run else []
        else:
            runs = plan_compaction(files, rollup_bytes=rollup_bytes, most_files=50)
        for run in runs:
            size = int(sum(file.size_bytes for file in run) * compression) + 1
            name = FileName(run[0].start, run[-1].stop)
            files = [file for file in files if file not in run]
            files.append(LiveFile(REF, name, run[0].start, run[-1].stop, size, 0))
            files.sort(key=lambda file: file.start)
    assert set(stay) <= set(files)


def test_settled_are_large_files_and_those_between_them() -> None:
    large, small = SETTLED_BYTES, SETTLED_BYTES - 1
    files = files_of([small, large, small, large, small, small, large])
    assert [file.start for file in settled(listed(files, seal_offset=7))] == [0, 1, 2, 3, 6]
    assert settled(listed(files, sealed=False)) == ()
    # A compaction of the default size would leave the third alone, and one after it might not.
    assert DEFAULT_ROLLUP_BYTES // 1024**2 == 256
    sizes = [each * 1024**2 for each in (120, 120, 100)]
    assert [file.start for file in settled(listed(files_of([*sizes, large]), seal_offset=4))] == [3]


@pytest.mark.parametrize(("seal_offset", "expected"), [(5, 5), (4, 4), (None, 4)])
def test_the_seal_is_never_taken(seal_offset: int | None, expected: int):
    """An empty seal stands behind the last file; one with messages is the last file, as an unknown one may be."""
    assert len(movable(listed(files_of([1] * 5), seal_offset=seal_offset), older_than_us=0)) == expected


def test_of_an_open_segment_the_newest_few_and_all_from_the_first_young_one_on_stay():
    files = files_of([1] * 10, modified_us=[1, 1, 9, 1, 1, 1, 1, 1, 1, 1])
    assert len(movable(listed(files, sealed=False), older_than_us=9)) == 10 - NEWEST_KEPT
    assert len(movable(listed(files, sealed=False), older_than_us=8)) == 2
    assert len(movable(listed(files[:3], sealed=False), older_than_us=9)) == 0


def test_tasks_are_of_a_size_and_a_number_of_files():
    parts = in_parts(files_of([30, 30, 50, 200, 1, 1, 1]), most_bytes=100, most_files=2)
    assert [[file.size_bytes for file in part] for part in parts] == [[30, 30], [50], [200], [1, 1], [1]]
