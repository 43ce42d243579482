"""The options of `mq pipeline backfill`."""

import argparse
from pathlib import Path
from typing import get_args

from braidmq.json_rows.texts import NonFinite
from braidmq.times import EventTimeUnit
from filer.topic.reservations import MOST_SEGMENTS
from pipeline.backfill.choices import Source
from pipeline.errors import WrongUsage
from pipeline.options import Command, JobParser, add_common_options, between

_FORMATS = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "orc": "orc", "parquet": "parquet"}


def add_backfill(jobs: "argparse._SubParsersAction[JobParser]", command: Command) -> None:
    """Add the job. It needs no options for the store."""
    help_line = "Bulk load a table or files into a topic, past the brokers."
    parser: JobParser = jobs.add_parser("backfill", help=help_line, description=help_line)
    parser.set_defaults(job="backfill", command=command, check=_check)
    parser.add_argument("source", metavar="SOURCE", help="a file or folder, or with --format table a table's name")
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic, which must exist")
    add_common_options(parser)
    parser.add_argument(
        "--format", help="the format's name in Spark; by default by the ending of the name, else parquet"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of that format; repeatable"
    )
    parser.add_argument("--key", metavar="COL", help="the column with the key; without it messages have no key")
    value = parser.add_mutually_exclusive_group(required=True)
    value.add_argument("--value", metavar="COL", help="the column with the value")
    value.add_argument("--value-json", action="store_true", help="the whole row is the value, as JSON")
    parser.add_argument("--event-time", metavar="COL", help="the column with the event time")
    parser.add_argument(
        "--event-time-unit", choices=get_args(EventTimeUnit), help="what whole numbers in that column count since 1970"
    )
    parser.add_argument(
        "--non-finite",
        choices=get_args(NonFinite),
        default="refuse",
        help="what NaN and infinities become, for which JSON has no numbers (refuse)",
    )
    parser.add_argument(
        "--order-by-event-time", action="store_true", help="store messages in its order; otherwise key by key"
    )
    parser.add_argument(
        "--segments", type=between(1, MOST_SEGMENTS), metavar="N", help="number of segments to load into"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="load nothing; convert every row and print what would be loaded"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask about unlikely event times, only warn")
    parser.add_argument("--load", metavar="ID", help="id of the bulk load; continues it if it was begun before")


def _check(options: argparse.Namespace) -> None:
    if options.order_by_event_time and options.event_time is None:
        raise WrongUsage("--order-by-event-time needs --event-time")
    if options.event_time_unit is not None and options.event_time is None:
        raise WrongUsage("--event-time-unit needs --event-time")
    source_of(options)


def source_of(options: argparse.Namespace) -> Source:
    """Return the source in the options. Raises `WrongUsage`."""
    given = dict(_name_and_value(each) for each in options.option)
    ending = Path(options.source.removesuffix(".gz")).suffix.removeprefix(".")
    table_format = options.format or _FORMATS.get(ending, "parquet")
    # The first line names the columns, as for `mq publish`.
    defaults = {"header": "true"} if table_format == "csv" else {}
    return Source(options.source, table_format, {**defaults, **given})


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise WrongUsage(f"--option: {text!r} is not of the form NAME=VALUE")
    return name, value
