"""The three standard streams. Any of them may be closed, and a reader of stdout may go away."""

import errno
import io
import os
import sys
from typing import Any

from filer.errors import BraidError

_STDIN, _STDOUT, _STDERR = range(3)


class OutputClosed(BraidError):
    """The reader of the output has closed it, as `head` does."""


class OutputFailed(BraidError):
    """Nothing can be written to stdout: it is closed, or the disk is full."""


class _Stdout(io.FileIO):
    """Distinguishes failures of stdout from all others, for all writers: commands, Typer or rich."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise OutputClosed from error
        except OSError as error:
            reason = "it is closed" if error.errno == errno.EBADF else error.strerror
            raise OutputFailed(f"cannot write to stdout: {reason}") from error


def open_streams() -> None:
    """Open the standard streams that are closed, and let stdout raise `OutputClosed` and `OutputFailed`.

    If one were left closed (`mq topic list >&-`), the first file or socket that is opened would take its number: output
    would be written into a connection, and libuv aborts. Reading from a closed stream fails, and so does writing to
    stdout, as in other programs: it must not look as if the output had gone anywhere. Output to stderr is lost.
    """
    for number, mode in ((_STDIN, os.O_WRONLY), (_STDOUT, os.O_RDONLY), (_STDERR, os.O_WRONLY)):
        if not _is_open(number):
            # The file takes the lowest free number, which is this one: those below are open.
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(_STDIN, closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w", closefd=False)
    before = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Stdout(_STDOUT, "w", closefd=False)),
        encoding=None if before is None else before.encoding,
        errors=None if before is None else before.errors,
        line_buffering=os.isatty(_STDOUT),
    )


def discard_stdout() -> None:
    """Discard the data left in the buffers of stdout, and all that is written to it from now on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
