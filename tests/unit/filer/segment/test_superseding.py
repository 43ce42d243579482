"""What the index makes of roll-ups and retention, and that its snapshot tells the same."""

import pytest

from filer.errors import CorruptFile
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex, Superseded
from filer.segment.snapshot_format import from_snapshot, to_snapshot


def owned(base: int, end: int, *, last_us: int = 0, sealed: bool = False) -> FileFacts:
    return FileFacts(FileName(base), end, 100, last_us, last_us, 1, sealed, base)


def rolled(base: int, end: int) -> FileFacts:
    return FileFacts(FileName(base, end), end, 150, 1, 1, start=base)


def index_of(*files: FileFacts, start_offset: int = 0) -> SegmentIndex:
    index = SegmentIndex(start_offset)
    for facts in files:
        index.append(facts)
    return index


def ten_files() -> SegmentIndex:
    return index_of(*(owned(base, base + 10) for base in range(0, 100, 10)))


def names(index: SegmentIndex) -> list[str]:
    return [f"{f.base}-{f.name.end}@{f.start}" if f.name.end else f"{f.base}@{f.start}" for f in index.files]


def test_a_roll_up_stands_for_the_files_it_holds():
    index = ten_files()
    covered = index.supersede(rolled(20, 50), 7)
    assert [facts.base for facts in covered] == [20, 30, 40]
    assert names(index)[:4] == ["0@0", "10@10", "20-50@20", "50@50"]
    assert index.superseded == [Superseded(20, 50, 7, rolled=True)]
    assert index.size_bytes == 7 * 100 + 150
    assert [index.files[index.position_of(offset)].base for offset in (19, 20, 49, 50)] == [10, 20, 20, 50]


def test_the_same_roll_up_twice_or_one_within_another_changes_nothing():
    index = ten_files()
    index.supersede(rolled(20, 50), 7)
    before = index.changes
    assert index.supersede(rolled(20, 50), 8) == []
    assert index.supersede(rolled(30, 50), 8) == []
    assert index.supersede(rolled(20, 40), 8) == []
    assert index.changes == before
    assert len(index.superseded) == 1


def test_one_that_overlaps_another_counts_from_where_that_ends():
    index = ten_files()
    index.supersede(rolled(0, 50), 7)
    index.supersede(rolled(30, 80), 8)
    assert names(index) == ["0-50@0", "30-80@50", "80@80", "90@90"]
    index.supersede(rolled(0, 80), 9)
    assert names(index) == ["0-80@0", "80@80", "90@90"]


def test_one_that_begins_before_the_index_counts_from_its_start():
    index = index_of(owned(40, 50), owned(50, 60), start_offset=40)
    index.supersede(rolled(30, 60), 7)
    assert names(index) == ["30-60@40"]


@pytest.mark.parametrize("end", [45, 110])
def test_one_that_cuts_through_a_file_or_ends_beyond_is_refused(end: int):
    index = ten_files()
    with pytest.raises(CorruptFile, match="does not end where a file ends"):
        index.supersede(rolled(20, end), 7)
    assert len(index.files) == 10


def test_the_seal_is_never_rolled_up():
    index = index_of(owned(0, 10), owned(10, 20), owned(20, 30, sealed=True))
    with pytest.raises(CorruptFile):
        index.supersede(rolled(10, 30), 7)


BY_ROLLUP, BY_RETENTION = Superseded(10, 50, 7, rolled=True), Superseded(0, 50, 7, rolled=False)


@pytest.mark.parametrize("name", [FileName(10), FileName(40), FileName(10, 40), FileName(20, 50)], ids=str)
def test_superseded_ranges_hold_the_files_within_them(name: FileName):
    assert BY_ROLLUP.holds(name)
    assert BY_RETENTION.holds(name)


@pytest.mark.parametrize("name", [FileName(50), FileName(50, 60), FileName(40, 60), FileName(0, 60)], ids=str)
def test_superseded_ranges_do_not_hold_files_beyond_them(name: FileName):
    assert not BY_ROLLUP.holds(name)
    assert not BY_RETENTION.holds(name)


def test_the_roll_up_that_replaced_a_range_is_not_superseded_by_it():
    assert not BY_ROLLUP.holds(FileName(10, 50))
    assert BY_RETENTION.holds(FileName(0, 50))


def test_retention_forgets_whole_files_and_never_the_last():
    index = ten_files()
    assert index.trim(25, 7) == [owned(0, 10), owned(10, 20)]
    assert (index.start_offset, index.files[0].base) == (25, 20)
    assert index.superseded == [Superseded(0, 20, 7, rolled=False)]
    assert len(index.trim(100, 8)) == 7
    assert names(index) == ["90@90"]
    assert index.end == 100
    assert index.trim(50, 9) == []
    assert index.start_offset == 100


def test_deleted_ranges_are_forgotten():
    index = ten_files()
    index.supersede(rolled(0, 20), 1)
    index.supersede(rolled(20, 40), 2)
    index.deleted(index.superseded[:1])
    assert index.superseded == [Superseded(20, 40, 2, rolled=True)]


def test_a_snapshot_gives_the_same_index():
    index = ten_files()
    index.append(owned(100, 100, sealed=True))
    index.supersede(rolled(0, 50), 7)
    index.supersede(rolled(30, 80), 8)
    index.trim(50, 9)
    again = from_snapshot(to_snapshot(index), 0)
    assert again.files == index.files
    assert names(again) == ["30-80@50", "80@80", "90@90", "100@100"]
    assert again.superseded == index.superseded
    assert again.size_bytes == index.size_bytes
    assert (again.start_offset, again.end, again.sealed) == (50, 100, True)
    assert again.changes == 0


def test_a_snapshot_of_an_empty_index():
    empty = from_snapshot(to_snapshot(SegmentIndex(5)), 3)
    assert (empty.start_offset, empty.end, empty.files) == (5, 5, [])


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", to_snapshot(ten_files())[:-40]], ids=["empty", "nonsense", "truncated"]
)
def test_bytes_that_are_no_snapshot_are_refused(data: bytes):
    with pytest.raises(CorruptFile):
        from_snapshot(data, 0)


def test_a_copy_does_not_change_with_the_original():
    index = ten_files()
    copy = index.copy()
    index.supersede(rolled(0, 50), 7)
    index.append(owned(100, 110))
    assert (len(copy.files), copy.superseded, copy.end) == (10, [], 100)
    assert to_snapshot(copy) == to_snapshot(ten_files())


def test_times_are_found_in_spite_of_an_empty_seal():
    index = index_of(owned(0, 10, last_us=5), owned(10, 20, last_us=9), owned(20, 20, sealed=True))
    assert [index.position_of_time(us) for us in (1, 5, 6, 9, 10)] == [0, 0, 1, 1, 2]
    assert index_of(owned(0, 0, sealed=True)).position_of_time(1) == 0
    assert SegmentIndex().position_of_time(1) == 0
