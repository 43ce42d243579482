"""A file of which only a part is at hand, for readers that want one."""

from collections.abc import Sequence

from filer.ranged_file import RangedFile


class SparseFile(RangedFile):
    """A file of which only some byte ranges have been fetched; reading outside them raises `OSError`."""

    def __init__(self, size_bytes: int, parts: Sequence[tuple[int, bytes]]) -> None:
        super().__init__(size_bytes)
        self._parts = parts

    def part(self, start: int, stop: int) -> bytes | None:
        """The bytes `[start, stop)`, where one of the ranges has them all."""
        for begin, data in self._parts:
            if begin <= start and stop <= begin + len(data):
                return data[start - begin : stop - begin]
        return None

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes `[start, stop)`; raises `OSError` where they were not fetched."""
        return self._bytes(start, stop)

    def _bytes(self, start: int, stop: int) -> bytes:
        found = self.part(start, stop)
        if found is None:
            raise OSError(f"bytes [{start}, {stop}) were not fetched")
        return found
