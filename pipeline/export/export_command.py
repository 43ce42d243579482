"""`mq pipeline export`: its options and its output."""

import argparse
import logging
from dataclasses import replace
from functools import partial
from typing import get_args

from pipeline.errors import WrongUsage
from pipeline.export import iceberg_table, parquet_table
from pipeline.export.export import Export, Exported, FinishRun, Planned, export_topic, planned
from pipeline.export.export_plan import MOST_PIECES, InPlace
from pipeline.export.export_state import PartitionBy, PartitionEvery, TableFormat
from pipeline.export.iceberg_table import IcebergTarget
from pipeline.export.schema_file import read_schema
from pipeline.export.table_columns import TableColumns, table_columns
from pipeline.options import JobParser, store_of
from pipeline.output import counted, print_json, print_lines, say, size
from pipeline.workers import Workers


def add_export_options(parser: JobParser) -> None:
    """Add the options for the place and the kind of the table."""
    parser.set_defaults(check=_check)
    parser.add_argument(
        "--to",
        metavar="DIR|s3://…",
        required=True,
        help="folder of the table, new or existing, with nothing else in it",
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing; print what would be added")
    parser.add_argument(
        "--skip-expired",
        action="store_true",
        help="continue if retention has deleted messages that were never exported",
    )
    parser.add_argument(
        "--format", choices=get_args(TableFormat), default="parquet", help="the table's format (parquet)"
    )
    _add_partition_options(parser)
    _add_column_options(parser)
    _add_iceberg_options(parser)


def _add_partition_options(parser: JobParser) -> None:
    parser.add_argument(
        "--partition-by",
        choices=get_args(PartitionBy),
        help="Parquet only: a folder for each day, by the broker's time (timestamp, the default) or the producer's",
    )
    parser.add_argument(
        "--partition-every",
        choices=get_args(PartitionEvery),
        help="Parquet only: a folder for each day (the default), or for each hour of a day",
    )


def _add_column_options(parser: JobParser) -> None:
    parser.add_argument(
        "--schema",
        metavar="FILE",
        help="the types of the members of JSON values, which become columns: a Parquet file, Spark's df.schema.json(), "
        'or {"NAME": "TYPE", …}',
    )
    parser.add_argument(
        "--columns",
        metavar="NAME,…",
        help="the columns of the table: those of messages, and members that the schema names (NAME or value.NAME)",
    )
    parser.add_argument(
        "--unfit-to",
        metavar="DIR|s3://…",
        help="where messages go whose values do not fit the schema; without it the job stops at the first",
    )


def _add_iceberg_options(parser: JobParser) -> None:
    in_place = parser.add_mutually_exclusive_group()
    in_place.add_argument(
        "--in-place",
        dest="in_place",
        action="store_const",
        const=InPlace.FINAL,
        default=InPlace.NO,
        help="Iceberg only: refer to sealed files that are final, copy the rest",
    )
    in_place.add_argument(
        "--in-place-only",
        dest="in_place",
        action="store_const",
        const=InPlace.FINAL_ONLY,
        help="Iceberg only: the same, but copy nothing: leave the rest until it is final",
    )
    parser.add_argument(
        "--table", metavar="NAMESPACE.NAME", help="Iceberg only: the table's name (by default braidmq.TOPIC)"
    )
    parser.add_argument(
        "--catalog",
        metavar="URL",
        help="Iceberg only: an SQL database; by default a file of SQLite in the table's folder",
    )


def _check(options: argparse.Namespace) -> None:
    """Raises `WrongUsage` for options of the other format."""
    is_iceberg = options.format == "iceberg"
    if not is_iceberg and options.in_place is not InPlace.NO:
        raise WrongUsage(f"--in-place is not for a table of format {options.format}")
    for name in ("partition_by", "partition_every") if is_iceberg else ("table", "catalog"):
        if getattr(options, name):
            raise WrongUsage(f"--{name.replace('_', '-')} is not for a table of format {options.format}")
    if options.partition_by == "none" and options.partition_every:
        raise WrongUsage("--partition-every is not for --partition-by none")
    if options.unfit_to and not options.schema:
        raise WrongUsage("--unfit-to is for values with a --schema")
    if options.in_place is not InPlace.NO and (options.schema or options.columns):
        raise WrongUsage("--in-place refers to the topic's files as they are: leave out --columns and --schema")
    _iceberg_of(options)


def run_export(workers: Workers, options: argparse.Namespace) -> None:
    """Run the job and print what it added. Raises any `BraidError`."""
    # It warns about columns without statistics, which every topic has.
    logging.getLogger("pyiceberg").setLevel("ERROR")
    export, finish = _export_of(options)
    if options.dry_run:
        _show_plan(export, planned(export), as_json=options.json)
        return
    if export.in_place is not InPlace.NO:
        # Before the first copy is made: copies stay copies.
        _announce_copies(export, planned(export))
    done = export_topic(workers, export, finish)
    if options.json:
        document = {"topic": export.topic, "runs": done.runs, "messages": done.messages}
        print_json({**document, "by_reference": done.by_reference, "unfit": done.unfit})
    elif not done.runs:
        print_lines(f"topic {export.topic}: nothing new")
    else:
        referred = f", {done.by_reference:,} of them by reference" if done.by_reference else ""
        apart = f"; {done.unfit:,} put into {options.unfit_to}, since the schema does not fit" if done.unfit else ""
        print_lines(f"topic {export.topic}: {counted(done.messages, 'message')} added{referred}{apart}")


def _announce_copies(export: Export, plan: Planned) -> None:
    """A table in place that copies messages all the same does so for a reason that nobody can see in it."""
    for line in _copies_lines(export, plan):
        say(line)


def _copies_lines(export: Export, plan: Planned) -> list[str]:
    """What is copied although the table is in place, why, and how fewer would be."""
    copies = plan.copies
    if export.in_place is InPlace.NO or not copies.messages:
        return []
    files = counted(copies.files, "file")
    lines = [f"copies {counted(copies.messages, 'message')} of {files} ({size(copies.size_bytes)}), which stay copies:"]
    if copies.sealed_messages:
        lines.append(
            f"  {copies.sealed_messages:,} in sealed segments, where a roll-up may still replace their files: with "
            f"mq pipeline compact {export.topic} before, or --in-place-only, fewer are copied"
        )
    if copies.open_messages:
        lines.append(f"  {copies.open_messages:,} in open segments; --in-place-only leaves them until they are sealed")
    return lines


def _show_plan(export: Export, plan: Planned, *, as_json: bool) -> None:
    would = Exported().plus(plan.pieces)
    if as_json:
        document = {"dry_run": True, "topic": export.topic, "messages": would.messages}
        copies = plan.copies
        print_json(
            {**document, "by_reference": would.by_reference, "unfinished": plan.is_unfinished}
            | {"copied_files": copies.files, "copied_bytes": copies.size_bytes}
        )
        return
    if not plan.pieces:
        print_lines(f"topic {export.topic}: nothing new")
        return
    referred = f", {would.by_reference:,} of them by reference" if would.by_reference else ""
    # A run adds so many pieces at most, and further runs follow.
    more = " and more" if len(plan.pieces) == MOST_PIECES else ""
    rest = ", the rest of a run that was interrupted" if plan.is_unfinished else ""
    print_lines(f"topic {export.topic}: would add {counted(would.messages, 'message')}{more}{referred}{rest}")
    print_lines(*_copies_lines(export, plan))


def _export_of(options: argparse.Namespace) -> tuple[Export, FinishRun]:
    """The export that the options ask for, and the function that finishes its runs."""
    is_iceberg = options.format == "iceberg"
    source = store_of(options)
    export = Export(
        source,
        replace(source, url=options.to, tidies_up=True),
        options.topic,
        options.format,
        "none" if is_iceberg else options.partition_by or "timestamp",
        options.partition_every or "day",
        _columns_of(options),
        None if options.unfit_to is None else replace(source, url=options.unfit_to, tidies_up=True),
        in_place=options.in_place,
        skip_expired=options.skip_expired,
    )
    return export, partial(iceberg_table.finish_run, _iceberg_of(options)) if is_iceberg else parquet_table.finish_run


def _columns_of(options: argparse.Namespace) -> TableColumns:
    """The columns that the options ask for. Raises `JobFailed` and `InvalidInput`."""
    schema = None if options.schema is None else read_schema(options.schema)
    columns = table_columns(options.columns, schema)
    if options.format == "iceberg" and "segment" not in columns.names:
        raise WrongUsage("--columns: an Iceberg table is partitioned by segment, so it needs that column")
    return columns


def _iceberg_of(options: argparse.Namespace) -> IcebergTarget:
    namespace, _, name = (options.table or f"braidmq.{options.topic}").partition(".")
    if not namespace or not name:
        raise WrongUsage(f"--table: {options.table!r} is not of the form NAMESPACE.NAME")
    return IcebergTarget(namespace, name, options.catalog)
