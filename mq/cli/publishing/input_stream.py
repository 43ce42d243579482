"""The bytes to publish, from stdin or from a file, which may be compressed."""

import fcntl
import gzip
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mq.cli.failures import CommandFailed

STDIN = "-"
STDIN_NAME = "stdin"
"""The name of stdin in errors."""
COMPRESSED = (".gz", ".zip")


class InputStream(io.RawIOBase):
    """A stream of bytes that knows how far its source has been read: `done_bytes` of `size_bytes`."""

    def __init__(self, name: str, content: io.RawIOBase | io.BufferedIOBase, source: io.FileIO | None) -> None:
        self.name = name
        self._content, self._source = content, source
        self._head = b""
        self._given_bytes = 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed has no name for its type
        """Read what is available: at least one byte unless the end is reached."""
        if self._head:
            count = min(len(buffer), len(self._head))
            buffer[:count], self._head = self._head[:count], self._head[count:]
        else:
            count = self._content.readinto(buffer) or 0
        self._given_bytes += count
        return count

    def head(self, size_bytes: int) -> bytes:
        """Return at most `size_bytes` of the next bytes without consuming them."""
        while len(self._head) < size_bytes:
            chunk = self._content.read(size_bytes - len(self._head))
            if not chunk:
                break
            self._head += chunk
        return self._head

    @property
    def size_bytes(self) -> int | None:
        """Size of the source as stored, compressed or not; `None` if unknown."""
        return None if self._source is None else os.fstat(self._source.fileno()).st_size

    @property
    def done_bytes(self) -> int:
        """How many bytes of the source have been read."""
        return 0 if self._source is None else self._source.tell()

    def done_behind(self, given_bytes: int) -> int:
        """About how many bytes of the source lie behind the first `given_bytes` bytes of this stream, unpacked.

        For readers that take more than they have processed.
        """
        given = max(self._given_bytes, 1)
        return self.done_bytes * min(given_bytes, given) // given


@contextmanager
def open_input(name: str) -> Iterator[InputStream]:
    """The bytes of a file, or of stdin for `-`. Unpacks `.gz`, and `.zip` with a single file in it.

    Raises `CommandFailed` if the file cannot be unpacked.
    """
    if name == STDIN:
        if fcntl.fcntl(sys.stdin.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise CommandFailed("cannot read from stdin: it is closed")
        # The raw descriptor: it returns what is available, and has no lock that could delay the end of the process.
        with io.FileIO(sys.stdin.fileno(), closefd=False) as source:
            yield InputStream(STDIN_NAME, source, None)
        return
    try:
        with io.FileIO(name) as source:
            yield InputStream(name, _unpacked(Path(name), source), source)
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError) as error:
        raise CommandFailed(f"{name} cannot be unpacked: {error}") from error


def _unpacked(path: Path, source: io.FileIO) -> io.RawIOBase | io.BufferedIOBase:
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=source)
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(source)
        members = [each for each in archive.namelist() if not each.endswith("/")]
        if len(members) != 1:
            raise CommandFailed(f"{path} holds {len(members)} files: unpack it and name the file to publish")
        return io.BufferedReader(archive.open(members[0]))  # type: ignore[type-var]  # typeshed: IO[bytes]
    return source
