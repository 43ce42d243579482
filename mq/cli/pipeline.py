"""`mq pipeline`: jobs on Spark. The process becomes the job, as the broker's tools do without Spark."""

import os
import sys
from typing import Any, NoReturn

import typer

app = typer.Typer(help="Heavy work on a topic's files, on Spark.", no_args_is_help=True)

# The job knows its own options, --help included.
_AS_GIVEN: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
}


@app.command("skew", **_AS_GIVEN)
def skew(context: typer.Context) -> NoReturn:
    """Report the load per slot, and suggest where to cut the slots."""
    _start("skew", context)


@app.command("compact", **_AS_GIVEN)
def compact(context: typer.Context) -> NoReturn:
    """Write small files again as large ones, which stand for them."""
    _start("compact", context)


@app.command("export", **_AS_GIVEN)
def export(context: typer.Context) -> NoReturn:
    """Add what is new of a topic to a table of Parquet files, or of Iceberg."""
    _start("export", context)


@app.command("backfill", **_AS_GIVEN)
def backfill(context: typer.Context) -> NoReturn:
    """Load a table or files into a topic, past the brokers."""
    _start("backfill", context)


def _start(job: str, context: typer.Context) -> NoReturn:
    """Become the job, with the options as they were given: what ends `mq` ends the job, whatever the signal."""
    sys.stdout.flush()
    # A folder that happens to be called `pipeline` is not this one, for the job and for Spark's Python processes.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "pipeline", job, *context.args], environment)
