"""A file of which only a part is at hand, for readers that want one."""

import io
from collections.abc import Sequence


class SparseFile(io.RawIOBase):
    """A file of which only some byte ranges have been fetched; reading outside them is an error."""

    def __init__(self, size_bytes: int, parts: Sequence[tuple[int, bytes]]) -> None:
        super().__init__()
        self._size_bytes, self._parts, self._at = size_bytes, parts, 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The current position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move within the whole file's size."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = origin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Bytes from the current position; raises `OSError` where they were not fetched."""
        stop = self._size_bytes if size < 0 else min(self._at + size, self._size_bytes)
        if stop <= self._at:
            return b""
        for start, data in self._parts:
            if start <= self._at and stop <= start + len(data):
                found = data[self._at - start : stop - start]
                self._at = stop
                return found
        raise OSError(f"bytes [{self._at}, {stop}) were not fetched")
