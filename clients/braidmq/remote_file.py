"""A file behind a presigned address, read by ranges."""

import io

import httpx

from filer.errors import BraidError

WHOLE_FILE_BYTES = 4 * 1024 * 1024


class FileUnreachable(BraidError):
    """A file cannot be read where it was said to be: gone, the address expired, or not seen from this machine."""


class RemoteFile(io.RawIOBase):
    """As Arrow reads files: each read is a request of its own, but a small file is fetched whole by the first.

    Raises `FileUnreachable`, whatever the reason is: whoever reads asks for a newer address, and then a broker.
    """

    def __init__(self, http: httpx.Client, url: str, size_bytes: int) -> None:
        super().__init__()
        self._http, self._url, self._size_bytes = http, url, size_bytes
        self._whole: bytes | None = None
        self._at = 0

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
        """Bytes from the current position."""
        stop = self._size_bytes if size < 0 else min(self._at + size, self._size_bytes)
        if stop <= self._at:
            return b""
        found = self._bytes(self._at, stop)
        self._at = stop
        return found

    def _bytes(self, start: int, stop: int) -> bytes:
        if self._size_bytes > WHOLE_FILE_BYTES:
            return self._fetch(start, stop)
        if self._whole is None:
            self._whole = self._fetch(0, self._size_bytes)
        return self._whole[start:stop]

    def _fetch(self, start: int, stop: int) -> bytes:
        try:
            answer = self._http.get(self._url, headers={"range": f"bytes={start}-{stop - 1}"})
        except httpx.HTTPError as failure:
            raise FileUnreachable(f"the store gave no answer: {failure}") from failure
        # A store that knows no ranges gives all of it.
        data = answer.content[start:stop] if answer.status_code == httpx.codes.OK else answer.content
        if not answer.is_success or len(data) != stop - start:
            raise FileUnreachable(f"the store answered {answer.status_code} with {len(data)} bytes")
        return data
