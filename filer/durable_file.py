"""Files that are written aside, made durable, and only then given their name."""

# Plain os calls: a Path per call costs more than the system calls do, and this is the path of every write.
# ruff: noqa: PTH108

import os
import threading

from filer.store import Data


def open_new(path: str) -> int:
    """A descriptor of a new file, for writing. Raises `OSError`."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def write_all(fd: int, data: Data) -> None:
    """Write every byte. Raises `OSError`."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def write_durable(path: str, data: Data) -> None:
    """A new file with those bytes, durable but for its name. Raises `OSError`."""
    fd = open_new(path)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durable_later(path: str, data: Data, *, than_ns: int) -> os.stat_result:
    """As `write_durable`, with a modification time after `than_ns`; its status."""
    fd = open_new(path)
    try:
        write_all(fd, data)
        status = _stamp_later(fd, than_ns)
        os.fsync(fd)
        return status
    finally:
        os.close(fd)


def _stamp_later(fd: int, than_ns: int) -> os.stat_result:
    """Move the modification time on until it is past `than_ns`, however coarse the file system keeps it."""
    step_ns = 1
    while (status := os.fstat(fd)).st_mtime_ns <= than_ns:
        os.utime(fd, ns=(than_ns + step_ns, than_ns + step_ns))
        step_ns *= 10
    return status


def remove_quietly(path: str) -> None:
    """Remove a temporary file; one that cannot be removed now is swept later."""
    try:
        os.unlink(path)
    except OSError:
        return


def sync_folder(path: str) -> None:
    """Make the names in a folder durable. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class PartFile:
    """A temporary file that is written part by part, by threads that take turns. Raises `OSError`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._turn = threading.Lock()
        self._fd = open_new(path)

    def write(self, data: Data) -> None:
        """Append all of it."""
        with self._turn:
            write_all(self._fd, data)

    def sync(self) -> None:
        """Make its bytes durable."""
        with self._turn:
            os.fsync(self._fd)

    def discard(self) -> None:
        """Close it, after whoever still writes, and remove its name; linked elsewhere it stays there."""
        with self._turn:
            os.close(self._fd)
            # A late writer fails instead of writing to whatever has this descriptor by then.
            self._fd = -1
            remove_quietly(self.path)
