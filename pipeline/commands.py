"""Parses the command line of the jobs and runs the job it names."""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from pipeline.options import Command, JobParser, add_job

if TYPE_CHECKING:
    from pipeline.workers import Workers

Jobs: TypeAlias = "argparse._SubParsersAction[JobParser]"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Raises `WrongUsage`. `--help` prints the help and ends the process.

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
    from pipeline.workers import workers

    with workers(options.job, options.master) as found:
        options.command(found, options)


# The options of a job are imported when it is named, and the job itself when it runs: errors of options, and the help,
# come without Arrow and the client, which take as long as a small export.


def _backfill(jobs: Jobs) -> None:
    from pipeline.backfill.backfill_options import add_backfill

    add_backfill(jobs, _later("pipeline.backfill.backfill_command", "run_backfill"))


def _compact(jobs: Jobs) -> None:
    from pipeline.compact.compact_options import add_compact_options

    command = _later("pipeline.compact.compact_command", "run_compact")
    add_compact_options(add_job(jobs, "compact", command, "Rewrite small files as large ones that replace them."))


def _export(jobs: Jobs) -> None:
    from pipeline.export.export_options import add_export_options

    command = _later("pipeline.export.export_command", "run_export")
    help_line = "Append the new messages of a topic to a table of Parquet files, or of Iceberg."
    add_export_options(add_job(jobs, "export", command, help_line))


def _skew(jobs: Jobs) -> None:
    from pipeline.skew.skew_options import add_skew_options

    command = _later("pipeline.skew.skew_command", "run_skew")
    add_skew_options(add_job(jobs, "skew", command, "Report the traffic per slot, and suggest where to cut the slots."))


def _later(module: str, name: str) -> Command:
    """Return the command of that name, whose module is imported when it is called."""

    def command(workers: "Workers", options: argparse.Namespace) -> None:
        getattr(import_module(module), name)(workers, options)

    return command


_JOBS: dict[str, Callable[[Jobs], None]] = {
    "backfill": _backfill,
    "compact": _compact,
    "export": _export,
    "skew": _skew,
}
