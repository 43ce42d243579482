"""`mq pipeline`: jobs on Spark. The process replaces itself with the job, so `mq` itself does not need Spark."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from mq.cli.context_in_force import IN_FORCE
from mq.cli.plain_help import HELP_OPTIONS, PlainGroup

app = typer.Typer(
    cls=PlainGroup,
    help="Run jobs on a topic's files, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP_OPTIONS,
)

# The job parses its own options, --help included.
_AS_GIVEN: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
}


@app.command("skew", **_AS_GIVEN)
def skew(context: typer.Context) -> NoReturn:
    """Report the traffic per slot, and suggest where to cut the slots."""
    _run("skew", context)


@app.command("compact", **_AS_GIVEN)
def compact(context: typer.Context) -> NoReturn:
    """Rewrite small files as large ones that replace them."""
    _run("compact", context)


@app.command("export", **_AS_GIVEN)
def export(context: typer.Context) -> NoReturn:
    """Append the new messages of a topic to a table of Parquet files, or of Iceberg."""
    _run("export", context)


@app.command("backfill", **_AS_GIVEN)
def backfill(context: typer.Context) -> NoReturn:
    """Bulk load a table or files into a topic, past the brokers."""
    _run("backfill", context)


def _url_in(arguments: Sequence[str]) -> str | None:
    """The address among a job's options, which the job will parse; None if there is none."""
    for at, word in enumerate(arguments):
        name, has_value, value = word.partition("=")
        # The job's parser accepts the beginning of a name for the name.
        if len(name) > len("--") and "--url".startswith(name):
            return value if has_value else next(iter(arguments[at + 1 :]), "")
    return None


def _run(job: str, context: typer.Context) -> NoReturn:
    """Replace this process with the job and the given options, so that every signal to `mq` reaches the job."""
    IN_FORCE.leave_unless_for(_url_in(context.args))
    sys.stdout.flush()
    # The job unblocks it once it can end without a stack trace. Between two programs it would be lost, or show one.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    # Keep a folder named `pipeline` in the working directory from being imported instead, here and in Spark's workers.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "pipeline", job, *context.args], environment)
