"""The rows of a page, by how much they take."""

import pyarrow as pa
import pytest

from filer.segment.read_room import SMALL_BYTES, Page, head


def table(*sizes: int) -> pa.Table:
    return pa.table({"value": pa.array([b"x" * size for size in sizes], pa.binary())})


@pytest.mark.parametrize(
    ("sizes", "max_rows", "max_bytes", "rows"),
    [
        ((10, 10, 10), 10, 1000, 3),
        ((10, 10, 10), 2, 1000, 2),
        ((100, 100, 100, 100), 10, 250, 2),
        ((1000, 1, 1), 10, 50, 1),
        ((1, 1, 1000, 1), 10, 50, 2),
        ((1000,), 10, 1, 1),
        ((), 10, 1, 0),
    ],
)
def test_the_first_rows_that_fit_and_always_one(
    sizes: tuple[int, ...], max_rows: int, max_bytes: int, rows: int
) -> None:
    whole = table(*sizes)
    assert head(whole, max_rows, max_bytes).equals(whole.slice(0, rows))
    pieces = pa.concat_tables([whole.slice(n, 1) for n in range(len(sizes))]) if sizes else whole
    assert head(pieces, max_rows, max_bytes).num_rows == rows


class Room:
    """Has so many bytes, and counts how often it was asked."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes, self.asked = left_bytes, 0

    async def take(self, size_bytes: int) -> bool:
        self.asked += 1
        if size_bytes > self.left_bytes:
            return False
        self.left_bytes -= size_bytes
        return True


async def test_room_is_taken_in_steps_before_it_is_used() -> None:
    room = Room(3 * SMALL_BYTES)
    page = Page(0, 1_000_000, 2**40, room)
    small = table(*[100] * 10)
    for number in range(1000):
        assert await page.has_room(small.nbytes)
        page.add(10 * number, small, decoded_bytes=small.nbytes)
    assert room.asked <= 2
    assert page.reached == 10_000 and not page.full
    assert not await page.has_room(3 * SMALL_BYTES) and page.full
