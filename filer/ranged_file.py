"""A file whose bytes are somewhere else, as Arrow and others read files."""

import io
from abc import abstractmethod


class RangedFile(io.RawIOBase):
    """A file of a known size of which any range of bytes can be asked for."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self._size_bytes, self._at = size_bytes, 0

    @abstractmethod
    def _bytes(self, start: int, stop: int) -> bytes:
        """The bytes `[start, stop)`, all of them, which lie within the file."""

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
        """Move within the file's size."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = origin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Bytes from the current position; raises what getting them raises."""
        stop = self._size_bytes if size < 0 else min(self._at + size, self._size_bytes)
        if stop <= self._at:
            return b""
        found = self._bytes(self._at, stop)
        self._at = stop
        return found
