"""A file behind a presigned address, read by ranges."""

import httpx

from filer.errors import BraidError
from filer.ranged_file import RangedFile

WHOLE_FILE_BYTES = 4 * 1024 * 1024


class FileUnreachable(BraidError):
    """A file cannot be read where it was said to be: gone, the address expired, or not seen from this machine."""


class RemoteFile(RangedFile):
    """As Arrow reads files: each read is a request of its own, but a small file is fetched whole by the first.

    Raises `FileUnreachable`, whatever the reason is: whoever reads asks for a newer address, and then a broker.
    """

    def __init__(self, http: httpx.Client, url: str, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self._http, self._url = http, url
        self._whole: bytes | None = None

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
