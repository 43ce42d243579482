"""Turn an exception into one line on stderr and an exit code."""

import os
import sys
from contextlib import suppress

import typer

from braidmq.command_words import in_command_words
from filer.errors import BraidError

FAILED = 1
WRONG_USAGE = 2


class CommandFailed(BraidError):
    """The command could not do what was asked."""


class OutputClosed(BraidError):
    """The reader of the output has closed it, as `head` does."""


def report(error: BaseException) -> int:
    """Print what went wrong on one line, if there is anything to print. Return the exit code."""
    if isinstance(error, typer.TyperException):
        say(error.format_message())
        return error.exit_code
    if isinstance(error, typer.Abort):
        say("stopped: nothing was done")
        return FAILED
    if isinstance(error, OutputClosed):
        _discard_stdout()
        return 0
    if isinstance(error, BraidError):
        say(in_command_words(str(error)))
    elif isinstance(error, OSError):
        say(_os_error_text(error))
    else:
        say(f"internal error, please report it: {type(error).__name__}: {error} (mq --debug shows where)")
    return FAILED


def _discard_stdout() -> None:
    """Discard what is left in the output buffers."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _os_error_text(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def say(message: str) -> None:
    """Print one line on stderr."""
    line = " ".join(message.split())
    if line:
        sys.stderr.write(f"mq: {line}\n")
