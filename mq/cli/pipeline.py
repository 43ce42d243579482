"""`mq pipeline`: jobs on Spark, in a process of their own, as the broker's tools do without Spark."""

import subprocess
import sys
from typing import Any

import typer

from mq.cli.failures import INTERRUPTED

app = typer.Typer(help="Heavy work on a topic's files, on Spark.", no_args_is_help=True)

# The job knows its own options, --help included.
_AS_GIVEN: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
}


@app.command("skew", **_AS_GIVEN)
def skew(context: typer.Context) -> int:
    """Report the load per slot, and suggest where to cut the slots."""
    return _start("skew", context)


@app.command("compact", **_AS_GIVEN)
def compact(context: typer.Context) -> int:
    """Write small files again as large ones, which stand for them."""
    return _start("compact", context)


@app.command("export", **_AS_GIVEN)
def export(context: typer.Context) -> int:
    """Add what is new of a topic to a table of Parquet files, or of Iceberg."""
    return _start("export", context)


@app.command("backfill", **_AS_GIVEN)
def backfill(context: typer.Context) -> int:
    """Load a table or files into a topic, past the brokers."""
    return _start("backfill", context)


def _start(job: str, context: typer.Context) -> int:
    """Run the job with the options as they were given; its exit code."""
    sys.stdout.flush()
    started = subprocess.Popen([sys.executable, "-m", "pipeline", job, *context.args])
    try:
        return started.wait()
    except KeyboardInterrupt:
        # The terminal has told the job as well, which ends Spark and then itself.
        started.wait()
        return INTERRUPTED
