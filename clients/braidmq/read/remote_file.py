"""A file at a presigned address, read by ranges."""

import httpx

from filer.errors import BraidError

WHOLE_FILE_BYTES = 4 * 1024 * 1024


class FileUnreachable(BraidError):
    """A file cannot be read: it is gone, its address has expired, or this machine cannot reach it."""


class RemoteFile:
    """A file of known size. Each read is one request, but the first read of a small file fetches all of it.

    Raises `FileUnreachable` for every failure: the reader then asks for a newer address, and after that a broker.
    """

    def __init__(self, http: httpx.Client, url: str, size_bytes: int) -> None:
        self._http, self._url, self._size_bytes = http, url, size_bytes
        self._whole: bytes | None = None

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes `[start, stop)`, which lie within the file."""
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
        # A store without range requests answers with the whole file.
        data = answer.content[start:stop] if answer.status_code == httpx.codes.OK else answer.content
        if not answer.is_success or len(data) != stop - start:
            raise FileUnreachable(f"the store answered {answer.status_code} with {len(data)} bytes")
        return data
