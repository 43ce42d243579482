from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import CorruptFile
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex, Superseded
from filer.segment.snapshot_format import from_snapshot, to_snapshot


def file(base: int, end: int, *, sealed: bool = False) -> FileFacts:
    return FileFacts(FileName(base), end, 10, base * 100, end * 100 - 1, sealed=sealed, start=base)


def roll_up(base: int, end: int) -> FileFacts:
    return FileFacts(FileName(base, end), end, 15, base * 100, end * 100 - 1, start=base)


def index_of(*counts: int, seal: bool = False) -> SegmentIndex:
    index = SegmentIndex()
    for count in counts:
        index.append(file(index.end, index.end + count))
    if seal:
        index.append(file(index.end, index.end, sealed=True))
    return index


def names(index: SegmentIndex) -> list[str]:
    return [str(facts.name) for facts in index.files]


COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=20)


@given(COUNTS, st.integers(0, 100))
def test_the_file_that_holds_an_offset_is_found(counts: list[int], offset: int) -> None:
    index = index_of(*counts)
    found = index.covering(offset)
    if offset >= sum(counts):
        assert not found
    else:
        assert found[0].start <= offset < found[0].end
        assert found[-1] is index.files[-1]


@given(COUNTS, st.integers(-1, 10_100))
def test_the_file_that_holds_a_time_is_found(counts: list[int], time_us: int) -> None:
    index = index_of(*counts, seal=True)
    number = index.position_of_time(time_us)
    assert all(facts.last_timestamp_us < time_us for facts in index.files[:number])
    if number < len(counts):
        assert index.files[number].last_timestamp_us >= time_us


@pytest.mark.parametrize("wrong", [file(0, 2), file(3, 4), file(1, 3)], ids=["again", "gap", "overlap"])
def test_a_file_that_does_not_begin_at_the_end_is_refused(wrong: FileFacts) -> None:
    with pytest.raises(CorruptFile, match="the log ends at 2"):
        index_of(2).append(wrong)


def test_nothing_is_appended_after_the_seal() -> None:
    index = index_of(2)
    index.append(file(2, 2, sealed=True))
    with pytest.raises(CorruptFile):
        index.append(file(2, 3))
    assert (index.end, index.sealed, index.size_bytes) == (2, True, 20)


@given(COUNTS, st.data())
def test_roll_ups_stand_for_what_they_cover(counts: list[int], data: st.DataObject) -> None:
    index = index_of(*counts, seal=True)
    end = index.end
    bounds = [facts.start for facts in index.files]
    for _ in range(3):
        first, last = sorted(data.draw(st.tuples(st.sampled_from(bounds), st.sampled_from(bounds))))
        if first == last:
            continue
        before = index.copy()
        try:
            covered = index.supersede(roll_up(first, last), since_us=7)
        except CorruptFile:
            assert names(index) == names(before)
            continue
        assert index.end == end and index.sealed
        assert [f.start for f in index.files] == [0, *(f.end for f in index.files[:-1])]
        assert index.size_bytes == sum(f.size_bytes for f in index.files)
        for facts in covered:
            assert any(old.holds(facts.name) for old in index.superseded)
        for facts in index.files:
            assert not any(old.holds(facts.name) for old in index.superseded)
        assert not index.supersede(roll_up(first, last), since_us=8)


def test_a_roll_up_that_begins_within_another_is_left_alone() -> None:
    index = index_of(1, 1, 1, 1, seal=True)
    assert index.supersede(roll_up(0, 2), since_us=1)
    assert index.supersede(roll_up(1, 3), since_us=2)
    for later in (roll_up(2, 3), roll_up(2, 4)):
        assert not index.supersede(later, since_us=3)
    assert [(f.name.base, f.start, f.end) for f in index.files[:3]] == [(0, 0, 2), (1, 2, 3), (3, 3, 4)]
    assert len(index.supersede(roll_up(0, 4), since_us=4)) == 3
    for name in (FileName(0, 2), FileName(1, 3), FileName(2, 3), FileName(2, 4)):
        assert any(old.holds(name) for old in index.superseded)


def test_roll_up_that_cuts_through_a_file_is_refused() -> None:
    index = index_of(2, 2, 2)
    with pytest.raises(CorruptFile, match="does not end where a file ends"):
        index.supersede(roll_up(0, 3), since_us=0)
    with pytest.raises(CorruptFile):
        index.supersede(roll_up(0, 7), since_us=0)
    assert names(index) == names(index_of(2, 2, 2))


def test_the_seal_is_never_rolled_up() -> None:
    index = index_of(2, 2)
    assert index.seal_offset is None
    index.append(file(4, 6, sealed=True))
    assert index.seal_offset == 4
    with pytest.raises(CorruptFile):
        index.supersede(roll_up(0, 6), since_us=0)
    assert index.sealed


def test_retention_trims_whole_files_and_never_the_last() -> None:
    index = index_of(2, 2, 2)
    assert [facts.base for facts in index.trim(3, since_us=5)] == [0]
    assert (index.start_offset, index.files[0].base) == (3, 2)
    assert [facts.base for facts in index.trim(6, since_us=6)] == [2]
    assert [facts.base for facts in index.files] == [4]
    assert index.superseded == [Superseded(0, 2, 5, rolled=False), Superseded(0, 4, 6, rolled=False)]
    index.deleted([index.superseded[0]])
    assert index.superseded == [Superseded(0, 4, 6, rolled=False)]


@given(COUNTS, st.booleans(), st.data())
def test_snapshots_bring_back_the_index(counts: list[int], seal: bool, data: st.DataObject) -> None:
    index = index_of(*counts, seal=seal)
    stored_bytes = index.size_bytes
    if len(counts) > 2:
        index.supersede(roll_up(0, sum(counts[:2])), since_us=5)
    # Retention moves the start to where a file begins.
    start = data.draw(st.sampled_from([facts.start for facts in index.files]))
    index.trim(start, since_us=9)
    again = from_snapshot(to_snapshot(index), 0)
    assert again.files == index.files
    assert again.superseded == index.superseded
    assert (again.start_offset, again.size_bytes, again.changes) == (index.start_offset, index.size_bytes, 0)
    assert again.stored_bytes == index.copy().stored_bytes == stored_bytes, "whatever has become of the files since"


def test_snapshot_of_nothing() -> None:
    again = from_snapshot(to_snapshot(SegmentIndex(7)), 0)
    assert (again.files, again.end) == ([], 7)


@given(st.binary(max_size=200))
def test_other_bytes_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        from_snapshot(data, 0)


def test_a_copy_stays_as_it_was() -> None:
    index = index_of(2, 2)
    copy = index.copy()
    index.append(file(4, 5))
    index.trim(2, since_us=0)
    assert (len(copy.files), copy.end, copy.superseded) == (2, 4, [])
    assert replace(copy.files[0]) == file(0, 2)
