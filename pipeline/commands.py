"""Parses the command line of the jobs and runs the job it names."""

import argparse
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pipeline.options import JobParser, add_job
from pipeline.workers import workers

Jobs: TypeAlias = "argparse._SubParsersAction[JobParser]"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed command line. Raises `WrongUsage`. `--help` prints the help and ends the process.

    `go_on` are the arguments with which an interrupted job goes on, besides the given ones. A job may set it.
    """
    parser = JobParser(prog="mq pipeline", description="Heavy work on Spark, against the files of a topic.")
    jobs = parser.add_subparsers(metavar="JOB", required=True)
    for add in [_JOBS[arguments[0]]] if arguments and arguments[0] in _JOBS else _JOBS.values():
        add(jobs)
    parser.set_defaults(go_on=())
    options = parser.parse_args(arguments)
    if "check" in options:
        options.check(options)
    return options


def run_job(options: argparse.Namespace) -> None:
    """Run the job. Raises any `BraidError`."""
    with workers(options.job, options.master) as found:
        options.command(found, options)


# Each job imports what it needs when it is named: all of them together take as long as a small export.


def _backfill(jobs: Jobs) -> None:
    from pipeline.backfill.backfill_command import add_backfill

    add_backfill(jobs)


def _compact(jobs: Jobs) -> None:
    from pipeline.compact.compact_command import add_compact_options, run_compact

    add_compact_options(add_job(jobs, "compact", run_compact, "Rewrite small files as large ones that replace them."))


def _export(jobs: Jobs) -> None:
    from pipeline.export.export_command import add_export_options, run_export

    help_line = "Append the new messages of a topic to a table of Parquet files, or of Iceberg."
    add_export_options(add_job(jobs, "export", run_export, help_line))


def _skew(jobs: Jobs) -> None:
    from pipeline.skew.skew_command import add_skew_options, run_skew

    add_skew_options(
        add_job(jobs, "skew", run_skew, "Report the traffic per slot, and suggest where to cut the slots.")
    )


_JOBS: dict[str, Callable[[Jobs], None]] = {
    "backfill": _backfill,
    "compact": _compact,
    "export": _export,
    "skew": _skew,
}
