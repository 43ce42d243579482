"""The room that a page takes."""

import pyarrow as pa

from filer.format.row_ends import Rows
from filer.segment.read_room import SMALL_BYTES, Page


def rows(*sizes: int) -> Rows:
    table = pa.table({"value": pa.array([b"x" * size for size in sizes], pa.binary())})
    return Rows(table, table.nbytes)


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
    small = rows(*[100] * 10)
    for number in range(1000):
        assert await page.has_room(small.size_bytes)
        page.add(10 * number, small, decoded_bytes=small.size_bytes)
    assert room.asked <= 2
    assert page.reached == 10_000 and not page.full
    assert not await page.has_room(3 * SMALL_BYTES) and page.full
