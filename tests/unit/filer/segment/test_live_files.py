import itertools

from hypothesis import given
from hypothesis import strategies as st

from filer.keys import FileName
from filer.segment.live_files import FileFacts, live_names, walk_chain


def file(base: int, end: int, *, rolled: bool = False, sealed: bool = False) -> FileFacts:
    return FileFacts(FileName(base, end if rolled else None), end, 1, base, end, sealed=sealed)


def spans(files: list[FileFacts], start: int = 0) -> list[tuple[int, int, bool]]:
    return [(facts.start, facts.end, facts.name.rolled) for facts in walk_chain(files, start).files]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[FileFacts], list[FileFacts]]:
    """(the owner's files, roll-ups of runs of them): what may stand in a segment's folder, in any order."""
    bounds = list(itertools.accumulate(draw(st.lists(st.integers(1, 4), min_size=1, max_size=12)), initial=0))
    owners = [file(base, end) for base, end in itertools.pairwise(bounds)]
    if draw(st.booleans()):
        owners[-1] = file(bounds[-2], bounds[-1], sealed=True)
    rolled = []
    runs = st.tuples(st.integers(0, len(bounds) - 1), st.integers(0, len(bounds) - 1))
    for first, last in draw(st.lists(runs, max_size=6)):
        if first < last:
            rolled.append(file(bounds[first], bounds[last], rolled=True))
    return owners, rolled


@given(logs(), st.randoms(use_true_random=False), st.data())
def test_names_tell_what_the_walk_tells(
    log: tuple[list[FileFacts], list[FileFacts]], random: object, data: st.DataObject
) -> None:
    """Names alone give the same cover as footers do, with and without what roll-ups have made superfluous."""
    owners, rolled = log
    covered = [o for o in owners if any(r.base <= o.base and o.end <= r.end for r in rolled)]
    gone = data.draw(st.lists(st.sampled_from(covered), unique=True)) if covered else []
    files = data.draw(st.permutations([o for o in owners if o not in gone] + rolled))
    end = owners[-1].end
    chain = walk_chain(files, 0)
    if not any(o.sealed for o in gone):
        assert chain.end == end
    names = live_names(facts.name for facts in files)
    assert [(live.name, live.start) for live in names] == [(f.name, f.start) for f in chain.files]
    assert [f.start for f in chain.files] == [0, *(f.end for f in chain.files[:-1])]


def test_what_reaches_furthest_counts() -> None:
    files = [file(0, 1), file(1, 2), file(2, 5), file(0, 2, rolled=True), file(0, 5, rolled=True)]
    assert spans(files) == [(0, 5, True)]
    assert spans(files[:4]) == [(0, 2, True), (2, 5, False)]


def test_roll_ups_that_overlap_follow_each_other() -> None:
    files = [file(0, 6, rolled=True), file(4, 9, rolled=True)]
    assert spans(files) == [(0, 6, True), (6, 9, True)]
    assert [facts.count for facts in walk_chain(files, 0).files] == [6, 3]
    assert [(live.name.base, live.start) for live in live_names(f.name for f in files)] == [(0, 0), (4, 6)]


def test_what_lies_beyond_a_gap_does_not_count() -> None:
    files = [file(0, 2), file(3, 4), file(4, 5)]
    assert spans(files) == [(0, 2, False)]
    assert walk_chain(files, 3).end == 5


def test_what_lies_beyond_the_seal_does_not_count() -> None:
    chain = walk_chain([file(0, 2), file(2, 3, sealed=True), file(3, 4)], 0)
    assert (chain.end, chain.sealed, len(chain.files)) == (3, True, 2)


def test_empty_seal_ends_the_log() -> None:
    chain = walk_chain([file(0, 2), file(2, 2, sealed=True)], 0)
    assert (chain.end, chain.sealed, chain.files[-1].count) == (2, True, 0)
    chain = walk_chain([file(0, 0, sealed=True)], 0)
    assert (chain.end, chain.sealed) == (0, True)


def test_a_segment_without_files() -> None:
    chain = walk_chain([], 7)
    assert (chain.files, chain.end, chain.sealed) == ((), 7, False)
    assert live_names([]) == []


def test_a_walk_may_begin_inside_a_roll_up() -> None:
    """Retention moves the start on file by file; a roll-up from before reaches over it."""
    assert spans([file(0, 10, rolled=True), file(10, 12)], 4) == [(4, 10, True), (10, 12, False)]


def test_an_owners_file_is_entered_at_its_start_only() -> None:
    assert spans([file(0, 5)], 3) == []
