import numpy as np
import pyarrow as pa
import pytest

from mq.cli.reading.reading_end import PastEnd, PresentEnd, clip


def page(*rows: tuple[int, int]) -> pa.Table:
    segments, offsets = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"segment": np.array(segments, np.int64), "_offset": np.array(offsets, np.int64)})


def end_at(**positions: int) -> PresentEnd:
    return PresentEnd({int(name[1:]): offset for name, offset in positions.items()})


def test_rows_before_the_end_stay_and_those_behind_go() -> None:
    rows = page((0, 5), (1, 9), (2, 0), (2, 3), (3, 0), (3, 7), (4, 0))
    # 0 and 1 were sealed before, 2 and 3 were open, 4 was opened later.
    kept = clip(rows, end_at(s2=3, s3=7))
    assert list(zip(*kept.to_pydict().values(), strict=True)) == [(0, 5), (1, 9), (2, 0), (3, 0)]


def test_a_page_wholly_before_the_end_is_not_touched() -> None:
    rows = page((2, 0), (2, 1))
    assert clip(rows, end_at(s2=2)) is rows
    assert clip(page(), end_at(s2=2)).num_rows == 0


@pytest.mark.parametrize(
    ("positions", "reached"),
    [
        ({2: 3, 3: 7}, True),
        ({2: 4, 3: 700}, True),
        ({2: 2, 3: 7}, False),
        ({1: 5, 3: 7}, False),  # a predecessor of 2 is not drained yet
        ({4: 0, 3: 7}, True),  # 2 was sealed meanwhile, and left for its successor
        ({4: 0, 5: 0}, True),
        ({4: 0, 3: 6}, False),
    ],
)
def test_the_end_is_reached_when_every_open_segment_is(positions: dict[int, int], reached: bool) -> None:
    assert end_at(s2=3, s3=7).is_reached(positions) is reached


# At the moment, 1 was being written. 4 was opened later, but before 5, of which nothing is older than the moment.
PAST = PastEnd({1: 10, 5: 0}, frozenset({0, 2, 3}))


def test_the_end_of_an_earlier_moment_goes_by_lineage_and_not_by_ids() -> None:
    rows = page((0, 99), (1, 9), (1, 10), (2, 0), (3, 5), (4, 0), (5, 0), (6, 0))
    kept = clip(rows, PAST)
    assert list(zip(*kept.to_pydict().values(), strict=True)) == [(0, 99), (1, 9), (2, 0), (3, 5)]


@pytest.mark.parametrize(
    ("positions", "reached"),
    [
        ({1: 10, 5: 0}, True),
        ({1: 9, 5: 0}, False),
        ({4: 0, 5: 3}, True),
        ({1: 10, 3: 100}, False),  # read to its end, but 5 is not entered yet
        ({0: 0, 5: 0}, False),
        ({6: 1}, True),
    ],
)
def test_the_end_of_an_earlier_moment_is_reached(positions: dict[int, int], reached: bool) -> None:
    assert PAST.is_reached(positions) is reached
