"""From an exception to one line on stderr and an exit code."""

import os
import sys
from contextlib import suppress

import typer

from filer.errors import BraidError

FAILED = 1
WRONG_USAGE = 2


class CommandFailed(BraidError):
    """The command could not do what was asked."""


class OutputClosed(BraidError):
    """Whoever read the output has seen enough, as `head` does."""


def report(error: BaseException) -> int:
    """Say what went wrong in one line, where there is something to say; the exit code."""
    if isinstance(error, typer.TyperException):
        _say(error.format_message())
        return error.exit_code
    if isinstance(error, typer.Abort):
        _say("stopped: nothing was done")
        return FAILED
    if isinstance(error, OutputClosed):
        _abandon_stdout()
        return 0
    if isinstance(error, BraidError):
        _say(str(error))
    elif isinstance(error, OSError):
        _say(_os_sentence(error))
    else:
        _say(f"internal error, please report it: {type(error).__name__}: {error} (mq --debug shows where)")
    return FAILED


def _abandon_stdout() -> None:
    """Write what is left in buffers to nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _os_sentence(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def _say(message: str) -> None:
    line = " ".join(message.split())
    if line:
        sys.stderr.write(f"mq: {line}\n")
