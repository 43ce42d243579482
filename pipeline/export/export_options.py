"""The options of `mq pipeline export`."""

import argparse
from typing import get_args

from pipeline.errors import WrongUsage
from pipeline.export.choices import IcebergTarget, InPlace, PartitionBy, PartitionEvery, TableFormat
from pipeline.options import JobParser


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
        help="Iceberg only: an SQL database, or a catalogue of REST (https://…); by default a file of SQLite in the "
        "table's folder",
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="Iceberg only: then rewrite small files of the table as large ones, and delete snapshots after 5 days",
    )


def _check(options: argparse.Namespace) -> None:
    """Raises `WrongUsage` for options of the other format."""
    is_iceberg = options.format == "iceberg"
    if not is_iceberg and options.in_place is not InPlace.NO:
        raise WrongUsage(f"--in-place is not for a table of format {options.format}")
    for name in ("partition_by", "partition_every") if is_iceberg else ("table", "catalog", "compact"):
        if getattr(options, name):
            raise WrongUsage(f"--{name.replace('_', '-')} is not for a table of format {options.format}")
    if options.compact and options.dry_run:
        raise WrongUsage("--dry-run does not say what --compact would do: leave one of them out")
    if options.partition_by == "none" and options.partition_every:
        raise WrongUsage("--partition-every is not for --partition-by none")
    if options.unfit_to and not options.schema:
        raise WrongUsage("--unfit-to is for values with a --schema")
    if options.in_place is not InPlace.NO and (options.schema or options.columns):
        raise WrongUsage("--in-place refers to the topic's files as they are: leave out --columns and --schema")
    iceberg_of(options)


def iceberg_of(options: argparse.Namespace) -> IcebergTarget:
    """Return the table that the options name. Raises `WrongUsage`."""
    namespace, _, name = (options.table or f"braidmq.{options.topic}").partition(".")
    if not namespace or not name:
        raise WrongUsage(f"--table: {options.table!r} is not of the form NAMESPACE.NAME")
    return IcebergTarget(namespace, name, options.catalog)
