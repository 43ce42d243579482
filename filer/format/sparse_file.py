"""A file of which only some byte ranges were fetched, for readers of Python files."""

from collections.abc import Sequence

from filer.format.ranged_file import RangedFile


class SparseFile(RangedFile):
    """A file with these `ranges` of it, each its first byte's position and its bytes; other reads raise `OSError`."""

    def __init__(self, size_bytes: int, ranges: Sequence[tuple[int, bytes]]) -> None:
        super().__init__(size_bytes)
        self._ranges = ranges

    def find(self, start: int, stop: int) -> bytes | None:
        """The bytes `[start, stop)` if one of the ranges has them all, else None."""
        for begin, data in self._ranges:
            if begin <= start and stop <= begin + len(data):
                return data[start - begin : stop - begin]
        return None

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes `[start, stop)`; raises `OSError` if they were not fetched."""
        return self._bytes(start, stop)

    def _bytes(self, start: int, stop: int) -> bytes:
        found = self.find(start, stop)
        if found is None:
            raise OSError(f"bytes [{start}, {stop}) were not fetched")
        return found
