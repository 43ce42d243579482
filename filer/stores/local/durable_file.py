"""Files that are written under a temporary name and made durable before they get their own name."""

# Plain os calls: making a Path costs more than the system call, and every write comes through here.
# ruff: noqa: PTH108

import os
import threading

from filer.stores.store import Data


def open_new(path: str, mode: int) -> int:
    """A descriptor of a new file, for writing. Raises `OSError`."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def write_all(fd: int, data: Data) -> None:
    """Write every byte. Raises `OSError`."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def write_durable(path: str, data: Data, mode: int) -> None:
    """Write a new file; its bytes are durable, its name not yet. Raises `OSError`."""
    fd = open_new(path, mode)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durable_later(path: str, data: Data, mode: int, *, than_ns: int) -> os.stat_result:
    """As `write_durable`, with a modification time after `than_ns`; returns the file's status."""
    fd = open_new(path, mode)
    try:
        write_all(fd, data)
        status = _stamp_later(fd, than_ns)
        os.fsync(fd)
        return status
    finally:
        os.close(fd)


def _stamp_later(fd: int, than_ns: int) -> os.stat_result:
    """Raise the modification time until it is after `than_ns`, however coarse the file system's times are."""
    step_ns = 1
    while (status := os.fstat(fd)).st_mtime_ns <= than_ns:
        os.utime(fd, ns=(than_ns + step_ns, than_ns + step_ns))
        step_ns *= 10
    return status


def remove_quietly(path: str) -> None:
    """Remove a temporary file. If that fails, the sweep removes it later."""
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
    """A temporary file that several threads write part by part, one at a time. Raises `OSError`."""

    def __init__(self, path: str, mode: int) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._fd = open_new(path, mode)

    def write(self, data: Data) -> None:
        """Append all of it."""
        with self._lock:
            write_all(self._fd, data)

    def sync(self) -> None:
        """Make its bytes durable."""
        with self._lock:
            os.fsync(self._fd)

    def discard(self) -> None:
        """Close the file once no thread writes to it, and remove its temporary name. Under other names it stays."""
        with self._lock:
            os.close(self._fd)
            # A thread that writes later fails, instead of writing to another file that got the same descriptor.
            self._fd = -1
            remove_quietly(self.path)
