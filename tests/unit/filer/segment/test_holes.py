"""What is gone or damaged is a hole in the log, never its end; with it put back, nothing is missing."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import CorruptFile
from filer.keys import FileName
from filer.segment.live_files import FileFacts, Hole, walk_chain
from filer.segment.segment_index import SegmentIndex
from filer.segment.snapshot_format import from_snapshot, to_snapshot
from filer.upkeep.rollup import plan_rollup


def file(base: int, end: int, *, rolled: bool = False, sealed: bool = False) -> FileFacts:
    return FileFacts(FileName(base, end if rolled else None), end, 10, base, max(end - 1, base), sealed=sealed)


def borders(index: SegmentIndex) -> list[tuple[int, int]]:
    return sorted((each.start, each.end) for each in (*index.files, *index.holes))


COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=10)


@given(COUNTS, st.booleans(), st.data())
def test_lost_files_leave_holes_between_those_that_remain(counts: list[int], seal: bool, data: st.DataObject) -> None:
    """Some are gone, some damaged: as long as the last one stands, the end is where it was."""
    bounds = list(itertools.accumulate(counts, initial=0))
    files = [file(base, end) for base, end in itertools.pairwise(bounds)]
    last = file(bounds[-1], bounds[-1] if seal else bounds[-1] + 1, sealed=seal)
    gone = set(data.draw(st.lists(st.sampled_from(files), unique=True)))
    damaged = set(data.draw(st.lists(st.sampled_from(files), unique=True))) - gone
    left = [each for each in files if each not in gone | damaged]
    chain = walk_chain(data.draw(st.permutations([*left, last])), 0, {each.name for each in damaged}, over_gaps=True)
    assert (chain.end, chain.sealed, chain.blocked) == (last.end, seal, None)
    assert [facts.name for facts in chain.files] == [facts.name for facts in (*left, last)]
    index = SegmentIndex.of_chain(chain, 0)
    lost = {offset for each in gone | damaged for offset in range(each.base, each.end)}
    for offset in range(last.end):
        assert (index.hole_at(offset) is not None) == (offset in lost)
        readable = index.readable(offset)
        assert bool(readable) == (offset not in lost)
        if readable:
            assert readable[0].start <= offset < readable[0].end
            assert all(one.end == other.start for one, other in itertools.pairwise(readable))
    for hole in index.holes:
        assert hole.damaged == (hole.name in {each.name for each in damaged})


@given(COUNTS, st.data())
def test_a_damaged_last_file_has_no_known_end(counts: list[int], data: st.DataObject) -> None:
    bounds = list(itertools.accumulate(counts, initial=0))
    files = [file(base, end) for base, end in itertools.pairwise(bounds)]
    chain = walk_chain(data.draw(st.permutations(files[:-1])), 0, {files[-1].name}, over_gaps=True)
    assert (chain.end, chain.blocked, chain.holes) == (files[-1].base, files[-1].name, ())


def test_a_damaged_roll_up_shows_where_it_ends() -> None:
    chain = walk_chain([file(0, 2)], 0, {FileName(2, 9)}, over_gaps=True)
    assert (chain.end, chain.blocked) == (9, None)
    assert chain.holes == (Hole(2, 9, FileName(2, 9), damaged=True),)


def test_files_that_a_damaged_roll_up_was_made_of_still_count() -> None:
    chain = walk_chain([file(0, 2), file(4, 6), file(6, 7)], 0, {FileName(0, 6)}, over_gaps=True)
    assert [facts.base for facts in chain.files] == [0, 4, 6]
    assert chain.holes == (Hole(2, 4, FileName(0, 6), damaged=True),)


def test_holes_without_a_file_between_them_have_a_name_each() -> None:
    chain = walk_chain([file(0, 1), file(5, 6)], 0, {FileName(3)}, over_gaps=True)
    assert chain.holes == (Hole(1, 3, FileName(1)), Hole(3, 5, FileName(3), damaged=True))


def of(*counts: int) -> SegmentIndex:
    index = SegmentIndex()
    for count in counts:
        start = index.end
        index.append(FileFacts(FileName(start), start + count, 10, start, start + count - 1, start=start))
    return index


@given(COUNTS, st.data())
def test_a_file_that_is_lost_and_put_back_leaves_no_trace(counts: list[int], data: st.DataObject) -> None:
    index, whole = of(*counts), of(*counts)
    lost = data.draw(st.lists(st.sampled_from(index.files), unique=True))
    for facts in lost:
        index.lose(facts, damaged=False)
        index.lose(facts, damaged=False)
    assert (index.end, borders(index)) == (whole.end, borders(whole))
    assert index.size_bytes == sum(facts.size_bytes for facts in index.files)
    assert [hole.facts for hole in index.holes] == sorted(lost, key=lambda facts: facts.start)
    for hole in list(data.draw(st.permutations(index.holes))):
        assert hole.facts is not None
        index.refill(hole, [hole.facts], [])
    assert (index.files, index.holes, index.size_bytes) == (whole.files, [], whole.size_bytes)
    assert index.stored_bytes == whole.stored_bytes
    for offset in range(whole.end):
        assert index.covering(offset) == whole.covering(offset)


def test_what_does_not_fill_a_hole_is_refused() -> None:
    index = of(2, 2, 2)
    index.lose(index.files[1], damaged=True)
    [hole] = index.holes
    for wrong in ([], [FileFacts(FileName(2), 3, 10, 2, 2, start=2)], [FileFacts(FileName(2), 5, 10, 2, 4, start=2)]):
        with pytest.raises(CorruptFile):
            index.refill(hole, wrong, [])
    assert index.holes == [hole]
    index.refill(hole, [FileFacts(FileName(2), 3, 10, 2, 2, start=2)], [Hole(3, 4, FileName(3))])
    assert borders(index) == [(0, 2), (2, 3), (3, 4), (4, 6)]


def test_a_lost_seal_with_messages_keeps_the_segment_sealed() -> None:
    index = of(2)
    index.append(FileFacts(FileName(2), 4, 10, 2, 3, sealed=True, start=2))
    index.lose(index.files[-1], damaged=False)
    assert (index.sealed, index.seal_offset, index.end) == (True, 2, 4)


@given(COUNTS, st.data())
def test_a_snapshot_keeps_lost_entries_and_ends_at_what_was_never_known(counts: list[int], data: st.DataObject) -> None:
    """As brokers of the version before read it."""
    index = of(*counts)
    for facts in data.draw(st.lists(st.sampled_from(index.files), unique=True)):
        index.lose(facts, damaged=False)
    known = of(*counts).files
    assert from_snapshot(to_snapshot(index), 0).files == known
    end = index.end
    index.append_hole(Hole(end, end + 2, FileName(end)))
    index.append(FileFacts(FileName(end + 2), end + 3, 10, end, end, start=end + 2))
    again = from_snapshot(to_snapshot(index), 0)
    assert (again.files, again.end) == (known, end)


def test_no_roll_up_reaches_over_a_hole() -> None:
    index = of(*[1] * 40)
    index.lose(index.files[12], damaged=False)
    run = plan_rollup(index.files, rollup_bytes=1 << 20, newest_kept=4, min_files=8, ripe_us=1 << 60)
    assert [facts.start for facts in run] == list(range(12))
    index.supersede(FileFacts(FileName(0, 12), 12, 100, 0, 11, start=0), since_us=1)
    run = plan_rollup(index.files, rollup_bytes=1 << 20, newest_kept=4, min_files=8, ripe_us=1 << 60)
    assert [facts.start for facts in run] == list(range(13, 36))


def test_a_roll_up_that_holds_what_is_lost_fills_the_hole() -> None:
    index = of(1, 1, 1, 1)
    index.lose(index.files[0], damaged=False)
    assert index.supersede(FileFacts(FileName(0, 3), 3, 30, 0, 2), since_us=1)
    assert (index.holes, borders(index)) == ([], [(0, 3), (3, 4)])


def test_retention_passes_holes() -> None:
    index = of(2, 2, 2)
    index.lose(index.files[1], damaged=False)
    index.trim(4, since_us=1)
    assert (index.holes, borders(index), index.start_offset) == ([], [(4, 6)], 4)
