import pytest

from braidmq.models import Segment
from mq.cli.reading.lineage import ancestors, chain_of, count_between


def segment(name: int, slots: tuple[int, int], follows: tuple[int, ...] = (), end: int | None = None) -> Segment:
    return Segment(
        segment=name, range=slots, state="open" if end is None else "sealed", predecessors=follows, end_offset=end
    )


# 0 is split into 1 and 2; 1 is rolled into 3; 2 and 3 are merged into 4.
SEGMENTS = [
    segment(0, (0, 100), end=10),
    segment(1, (0, 50), (0,), end=5),
    segment(2, (50, 100), (0,), end=7),
    segment(3, (0, 50), (1,), end=3),
    segment(4, (0, 100), (2, 3)),
]


@pytest.mark.parametrize(
    ("ids", "expected"), [([0], set()), ([1, 2], {0}), ([3], {0, 1}), ([4], {0, 1, 2, 3}), ([9], set())]
)
def test_ancestors(ids: list[int], expected: set[int]) -> None:
    assert ancestors(SEGMENTS, ids) == expected


def test_one_segment_after_the_other_holds_a_slot() -> None:
    assert [each.segment for each in chain_of(reversed(SEGMENTS), 49)] == [0, 1, 3, 4]
    assert [each.segment for each in chain_of(SEGMENTS, 50)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        ({0: 0}, {4: 9}, 10 + 5 + 7 + 3 + 9),
        ({4: 2}, {4: 9}, 7),
        ({4: 9}, {4: 9}, 0),
        ({4: 12}, {4: 9}, 0),  # published since the end was taken
        ({1: 4, 2: 7}, {4: 9}, 1 + 0 + 3 + 9),
        ({2: 1, 3: 0}, {2: 6, 3: 2}, 5 + 2),
        ({0: 8}, {1: 2, 2: 0}, 2 + 2),
        ({0: 0}, {0: 4}, 4),
        # 0 is drained, and waits for 2 to be entered.
        ({0: 10, 1: 2}, {4: 0}, 3 + 7 + 3),
    ],
)
def test_how_many_messages_lie_between_two_positions(start: dict[int, int], end: dict[int, int], count: int) -> None:
    assert count_between(SEGMENTS, start, end) == count
