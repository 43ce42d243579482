"""Parses the command line of the jobs and runs the job it names."""

import argparse
from collections.abc import Sequence

from pipeline.backfill.backfill_command import add_backfill
from pipeline.compact.compact_command import add_compact_options, run_compact
from pipeline.export.export_command import add_export_options, run_export
from pipeline.options import JobParser, add_job
from pipeline.session import spark_session
from pipeline.skew.skew_command import add_skew_options, run_skew


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed command line. Raises `WrongUsage`. `--help` prints the help and ends the process.

    `go_on` are the arguments with which an interrupted job goes on, besides the given ones. A job may set it.
    """
    parser = JobParser(prog="mq pipeline", description="Heavy work on Spark, against the files of a topic.")
    jobs = parser.add_subparsers(metavar="JOB", required=True)
    add_backfill(jobs)
    add_compact_options(add_job(jobs, "compact", run_compact, "Rewrite small files as large ones that replace them."))
    add_export_options(
        add_job(
            jobs, "export", run_export, "Append the new messages of a topic to a table of Parquet files, or of Iceberg."
        )
    )
    add_skew_options(add_job(jobs, "skew", run_skew, "Count messages per slot, and suggest where to cut the slots."))
    parser.set_defaults(go_on=())
    options = parser.parse_args(arguments)
    if "check" in options:
        options.check(options)
    return options


def run(options: argparse.Namespace) -> None:
    """Run the job on Spark. Raises any `BraidError`."""
    with spark_session(options.job, options.master) as spark:
        options.command(spark, options)
