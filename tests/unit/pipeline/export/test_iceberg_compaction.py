from collections.abc import Sequence

import pytest

from pipeline.export.iceberg_compaction import TableFile, plan_groups


def file(segment: int, start: int, size_bytes: int) -> TableFile:
    return TableFile(segment, start, start + 10, f"data/{segment}-{start}", size_bytes, 10)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([(0, 0, 1), (0, 10, 1), (0, 20, 1)], [[0, 10, 20]]),
        ([(0, 20, 1), (0, 0, 1), (0, 10, 1)], [[0, 10, 20]]),
        ([(0, 0, 1)], []),
        ([(0, 0, 1), (1, 0, 1)], []),
        ([(0, 0, 4), (0, 10, 4), (0, 20, 4), (0, 30, 4)], [[0, 10], [20, 30]]),
        ([(0, 0, 1), (0, 10, 5), (0, 20, 1), (0, 30, 1)], [[20, 30]]),
        ([(0, 0, 1), (0, 10, 1), (0, 20, 5), (0, 30, 1)], [[0, 10]]),
        ([(0, 0, 5), (0, 10, 5)], []),
    ],
)
def test_small_files_that_follow_each_other_become_one(
    sizes: Sequence[tuple[int, int, int]], groups: Sequence[Sequence[int]]
) -> None:
    found = plan_groups((file(*each) for each in sizes), large_bytes=5, most_bytes=8)
    assert [[each.start for each in group] for group in found] == groups
