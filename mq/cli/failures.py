"""Turn an exception into one line on stderr and an exit code."""

import sys

import typer

from braidmq.remedies import in_commands
from filer.errors import BraidError
from filer.plain_messages import plain_message
from mq.cli.streams import OutputClosed, OutputFailed, discard_stdout
from mq.cli.terminal_text import escaped

FAILED = 1
WRONG_USAGE = 2


class CommandFailed(BraidError):
    """The command could not do its work."""


def report(error: BaseException) -> int:
    """Print the error on one line, if there is anything to print. Return the exit code."""
    if isinstance(error, typer.TyperException):
        say(plain_message(error.format_message()))
        return error.exit_code
    if isinstance(error, typer.Abort):
        say("stopped: nothing was done")
        return FAILED
    if isinstance(error, OutputClosed | OutputFailed):
        # The interpreter would try again at its end.
        discard_stdout()
        if isinstance(error, OutputClosed):
            return 0
    if isinstance(error, BraidError):
        say(f"{in_commands(error)}{_when_again(error)}")
    elif isinstance(error, OSError):
        say(_os_error_text(error))
    else:
        say(f"internal error, please report it: {type(error).__name__}: {error} (mq --debug shows where)")
    return FAILED


def _when_again(error: BraidError) -> str:
    """When a broker that had no room accepts the request again, if the error's text does not say so."""
    seconds = getattr(error, "retry_after_seconds", 0.0)
    again = f"in {seconds:.0f} s"
    return f"; come back {again}" if seconds and again not in str(error) else ""


def _os_error_text(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def say(message: str) -> None:
    """Print one line on stderr."""
    line = " ".join(message.split())
    if line:
        sys.stderr.write(f"mq: {escaped(line) if sys.stderr.isatty() else line}\n")
