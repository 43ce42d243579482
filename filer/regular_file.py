"""Reads a small file of settings or secrets, and never waits for one that is no file."""

import errno
import os
import stat
from pathlib import Path


def read_regular_file(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a file, at most so many. Raises `OSError`; its `strerror` says what is wrong.

    A pipe without a writer would block the open call for ever, deaf to signals. So this opens without waiting, and
    checks the open file before it reads: another file cannot take its place in between.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "it is no regular file: a pipe, a socket or a device cannot be read again", path)
    with open(descriptor, "rb") as file:
        return file.read(most_bytes)
