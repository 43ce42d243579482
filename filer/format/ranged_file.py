"""A file whose bytes are somewhere else, for Arrow and other readers of Python files."""

import io
from abc import abstractmethod


class RangedFile(io.RawIOBase):
    """A file of known size, read by byte ranges."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self._size_bytes, self._at = size_bytes, 0

    @abstractmethod
    def _bytes(self, start: int, stop: int) -> bytes:
        """All bytes `[start, stop)`; the range lies within the file."""

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
        """Move to a position within the file."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = origin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """The bytes from the current position on; raises whatever reading the range raises."""
        stop = self._size_bytes if size < 0 else min(self._at + size, self._size_bytes)
        if stop <= self._at:
            return b""
        found = self._bytes(self._at, stop)
        self._at = stop
        return found
