"""What is given up of a segment: which files count no more, and what becomes of an index that knew them."""

import pytest

from filer.keys import FileName
from filer.segment.live_files import FileFacts, Hole, walk_chain
from filer.segment.segment_index import SegmentIndex, Superseded
from filer.topic.given_up import GivenUpRange, GivenUpRanges

FILES = [(0, 3), (3, 5), (5, 9)]


def facts(base: int, end: int, *, rolled: bool = False) -> FileFacts:
    return FileFacts(FileName(base, end if rolled else None), end, 10, 1, 1, start=base)


def ranges(*each: tuple[int, int | None]) -> GivenUpRanges:
    return GivenUpRanges(tuple(GivenUpRange(start, end) for start, end in each))


def index_of(*files: tuple[int, int]) -> SegmentIndex:
    index = SegmentIndex()
    for base, end in files:
        index.append(facts(base, end))
    return index


def shape(index: SegmentIndex) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    return [(each.start, each.end) for each in index.files], [(each.start, each.end) for each in index.holes]


@pytest.mark.parametrize(
    ("given_up", "name", "is_masked"),
    [
        ((3, 5), FileName(3), True),
        ((3, 5), FileName(4), True),
        ((3, 5), FileName(5), False),
        ((3, 5), FileName(0, 3), False),
        ((3, 5), FileName(0, 4), True),
        ((3, 5), FileName(4, 9), True),
        ((3, 5), FileName(0, 9), True),
        ((3, None), FileName(3), True),
        ((3, None), FileName(4), False),
        ((3, None), FileName(0, 9), True),
    ],
)
def test_a_file_that_reaches_into_it_does_not_count(
    given_up: tuple[int, int | None], name: FileName, is_masked: bool
) -> None:
    assert ranges(given_up).masks_name(name) is is_masked


@pytest.mark.parametrize(
    ("given_up", "offset", "begins", "behind"),
    [
        ([(3, 5)], 3, [], 5),
        ([(3, 5)], 4, [], 5),
        ([(3, 5)], 5, [], 5),
        ([(3, 5), (5, 7)], 3, [], 7),
        ([(3, None)], 3, [0, 3, 8, 9], 8),
        ([(3, None)], 3, [0], 3),
        ([(3, None), (6, 8)], 3, [9], 8),
    ],
)
def test_messages_go_on_behind_it(
    given_up: list[tuple[int, int | None]], offset: int, begins: list[int], behind: int
) -> None:
    assert ranges(*given_up).behind(offset, begins) == behind


@pytest.mark.parametrize(
    ("given_up", "files", "holes"),
    [
        ([(3, 5)], [(0, 3), (5, 9)], [(3, 5)]),
        ([(0, 3)], [(3, 5), (5, 9)], [(0, 3)]),
        ([(3, 9)], [(0, 3)], [(3, 9)]),
        ([(0, 3), (3, 5)], [(5, 9)], [(0, 3), (3, 5)]),
        ([(3, None)], [(0, 3), (5, 9)], [(3, 5)]),
        ([(5, None)], [(0, 3), (3, 5)], [(5, 9)]),
        ([(9, 12)], FILES, []),
    ],
)
def test_an_index_that_knew_the_files(
    given_up: list[tuple[int, int | None]], files: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    index = index_of(*FILES)
    for _ in range(2):
        assert index.give_up(ranges(*given_up))
        assert shape(index) == (files, holes)
    assert index.end == 9 and not index.lost
    assert [each.start for each in index.readable(0)] == [start for start, _ in files], "nothing stops a reader"


def test_an_index_that_cannot_be_changed_stays_as_it_is() -> None:
    index = index_of((0, 3))
    index.append(facts(3, 9, rolled=True))
    assert not index.give_up(ranges((3, 5)))
    assert shape(index) == ([(0, 3), (3, 9)], [])


def test_a_hole_is_waited_for_no_more() -> None:
    index = index_of((0, 3))
    index.append_hole(Hole(3, 5, FileName(3)))
    index.append(facts(5, 9))
    assert index.readable(3) == [] and index.lost
    assert index.give_up(ranges((3, 5)))
    assert [each.start for each in index.readable(3)] == [5] and not index.lost


def test_what_a_roll_up_replaced_awaits_no_deletion_and_the_roll_up_does_not_come_to_count() -> None:
    index = index_of(*FILES)
    index.await_deletion(Superseded(0, 9, 1, rolled=True))
    index.await_deletion(Superseded(20, 30, 1, rolled=True))
    assert index.give_up(ranges((3, 5)))
    assert [old.start for old in index.superseded] == [20]
    assert index.supersede(facts(0, 9, rolled=True), 1) == []
    assert shape(index) == ([(0, 3), (5, 9)], [(3, 5)])


@pytest.mark.parametrize(
    ("given_up", "files", "holes", "end"),
    [
        ([(3, 5)], [(0, 3), (3, 5), (5, 9)], [(3, 5)], 9),
        ([(3, 5)], [(0, 3), (5, 9), (0, 9)], [(3, 5)], 9),
        ([(3, 5), (5, 9)], [(0, 3)], [(3, 5), (5, 9)], 9),
        ([(3, None)], [(0, 3), (3, 5), (5, 9)], [(3, 5)], 9),
        ([(3, None)], [(0, 3)], [], 3),
    ],
)
def test_the_walk_goes_on_behind_it(
    given_up: list[tuple[int, int | None]],
    files: list[tuple[int, int]],
    holes: list[tuple[int, int]],
    end: int,
) -> None:
    listed = [facts(base, stop, rolled=(base, stop) == (0, 9)) for base, stop in files]
    chain = walk_chain(listed, 0, given_up=ranges(*given_up))
    assert [(each.start, each.end) for each in chain.holes] == holes
    assert all(each.given_up for each in chain.holes)
    assert (chain.end, len(chain.files)) == (end, len({0, 5} & {base for base, _ in files}))


def test_what_is_lost_before_it_is_told() -> None:
    chain = walk_chain([facts(5, 9)], 0, over_gaps=True, given_up=ranges((3, 5)))
    assert [(each.start, each.end, each.given_up) for each in chain.holes] == [(0, 3, False), (3, 5, True)]
