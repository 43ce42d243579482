"""The jobs as commands: their options, how they begin, and what they print."""

import argparse
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, get_args
from urllib.parse import unquote

from braidmq import Client
from filer import keys
from filer.loads import MOST_SEGMENTS
from filer.s3_settings import AddressingStyle
from pipeline import iceberg_table, parquet_table
from pipeline.backfill import Columns, Source, backfill
from pipeline.brokers import tell_of_rollups
from pipeline.compact import (
    DEFAULT_OPEN_AGE_SECONDS,
    DEFAULT_ROLLUP_BYTES,
    MOST_ROLLUP_BYTES,
    Compaction,
    Rolled,
    compact,
)
from pipeline.errors import JobFailed, WrongUsage
from pipeline.export import Export, FinishRun, export_topic
from pipeline.export_state import PartitionBy, TableFormat
from pipeline.iceberg_table import IcebergTarget
from pipeline.output import counted, print_json, print_lines, print_table, say, size
from pipeline.session import spark_session
from pipeline.skew import Measure, RangeLoad, SkewReport, measure_skew
from pipeline.store_address import StoreAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1024 * 1024
DEFAULT_URL = "http://127.0.0.1:8080"
_FORMATS = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "orc": "orc", "parquet": "parquet"}
Command = Callable[["SparkSession", argparse.Namespace], None]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUsage(f"{message}; {self.prog} --help tells more")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line as given; raises `WrongUsage`. `--help` prints and ends the process."""
    parser = _Parser(prog="mq pipeline", description="Heavy work on Spark, against the files of a topic.")
    jobs = parser.add_subparsers(metavar="JOB", required=True)
    _add_skew(_job(jobs, "skew", _skew, "Report the load per slot, and suggest where to cut the slots."))
    _add_compact(_job(jobs, "compact", _compact, "Write small files again as large ones, which stand for them."))
    _add_export(_job(jobs, "export", _export, "Add what is new of a topic to a table of Parquet files, or of Iceberg."))
    _add_backfill(jobs)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Run the job on Spark. Raises any `BraidError`."""
    with spark_session(options.job, options.master) as spark:
        options.command(spark, options)


def _job(jobs: "argparse._SubParsersAction[_Parser]", name: str, command: Command, help_line: str) -> _Parser:
    """The parser of a job that reads a topic's files."""
    parser: _Parser = jobs.add_parser(name, help=help_line, description=help_line)
    parser.set_defaults(job=name, command=command)
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic")
    _add_common_options(parser)
    _add_store_options(parser)
    return parser


def _add_common_options(parser: _Parser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON for machines instead of text for people")
    parser.add_argument("--master", metavar="URL", help="the Spark cluster; all of this machine by default")
    parser.add_argument(
        "--url",
        metavar="URL",
        default=os.environ.get("BRAIDMQ_URL", DEFAULT_URL),
        help="address of a broker; several by commas [env BRAIDMQ_URL]",
    )


def _add_store_options(parser: _Parser) -> None:
    env = os.environ.get
    parser.add_argument(
        "--store",
        metavar="URL",
        default=env("BRAIDMQ_STORE"),
        help="the brokers' store as the tasks reach it; by default where the broker says it is [env BRAIDMQ_STORE]",
    )
    parser.add_argument("--s3-endpoint", metavar="URL", default=env("BRAIDMQ_S3_ENDPOINT"), help="of an S3 store")
    parser.add_argument("--s3-region", metavar="NAME", default=env("BRAIDMQ_S3_REGION"), help="of the bucket")
    parser.add_argument(
        "--s3-addressing",
        choices=get_args(AddressingStyle),
        default=env("BRAIDMQ_S3_ADDRESSING", "auto"),
        help="how buckets are addressed",
    )


def _store_of(options: argparse.Namespace) -> StoreAddress:
    """The store given, or the one that the broker's files are on. Raises `JobFailed` where neither tells."""
    url = options.store or _store_told(options.url, options.topic)
    return StoreAddress(url, options.s3_endpoint, options.s3_region, options.s3_addressing)


def _store_told(url: str, topic: str) -> str:
    with Client(url) as client:
        file = next(iter(client.files(topic)), None)
    if file is None:
        raise JobFailed(f"topic {topic!r} has no files yet, so where the store is cannot be told: give --store")
    root = file.uri.rpartition(f"/{keys.segments_folder(topic)}")[0]
    return unquote(root.removeprefix("file://")) if root.startswith("file://") else root


def _at_least(least: int) -> Callable[[str], int]:
    return _between(least, None)


def _between(least: int, most: int | None) -> Callable[[str], int]:
    bounds = f"from {least} on" if most is None else f"from {least} to {most}"

    def number(text: str) -> int:
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else -1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {bounds}")
        return value

    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


# -- skew --------------------------------------------------------------------------------------------------------


def _add_skew(parser: _Parser) -> None:
    parser.add_argument(
        "--parts", type=_at_least(1), metavar="N", help="suggest so many parts; as many as segments are open by default"
    )
    parser.add_argument(
        "--hottest", type=_at_least(0), metavar="N", default=10, help="show so many of the hottest slots (10)"
    )
    parser.add_argument(
        "--by", choices=get_args(Measure), default="messages", help="what is load: messages (the default) or bytes"
    )


def _skew(spark: "SparkSession", options: argparse.Namespace) -> None:
    report = measure_skew(
        spark, _store_of(options), options.topic, parts=options.parts, hottest=options.hottest, by=options.by
    )
    if options.json:
        print_json(_skew_document(report))
        return
    keyless = f", {report.keyless_messages:,} of them without a key" if report.keyless_messages else ""
    print_lines(
        f"topic {report.topic}: {counted(report.messages, 'message')} of {size(report.size_bytes)}{keyless}", ""
    )
    columns = ("messages", "size", f"share of {report.by}")
    print_table(("hottest slot", *columns), ((str(each.start), *_load_row(each)) for each in report.hottest))
    print_lines("")
    rows = ((str(segment), _slots(each), *_load_row(each)) for segment, each in report.segments)
    print_table(("open segment", "slots", *columns), rows)
    print_lines("")
    print_table(("suggested part", *columns), ((_slots(each), *_load_row(each)) for each in report.parts))
    if report.cut_points:
        print_lines("", f"cut at {' '.join(map(str, report.cut_points))}")


def _load_row(load: RangeLoad) -> tuple[object, ...]:
    return load.messages, size(load.size_bytes), f"{load.share:.1%}"


def _slots(load: RangeLoad) -> str:
    return f"{load.start}-{load.stop - 1}"


def _skew_document(report: SkewReport) -> dict[str, object]:
    return {
        "topic": report.topic,
        "messages": report.messages,
        "bytes": report.size_bytes,
        "keyless_messages": report.keyless_messages,
        "by": report.by,
        "hottest": [{"slot": each.start, **_load_document(each)} for each in report.hottest],
        "segments": [
            {"segment": segment, "range": [each.start, each.stop], **_load_document(each)}
            for segment, each in report.segments
        ],
        "parts": [{"range": [each.start, each.stop], **_load_document(each)} for each in report.parts],
        "cut_points": list(report.cut_points),
    }


def _load_document(load: RangeLoad) -> dict[str, object]:
    return {"messages": load.messages, "bytes": load.size_bytes, "share": round(load.share, 6)}


# -- compact -----------------------------------------------------------------------------------------------------


def _add_compact(parser: _Parser) -> None:
    parser.add_argument(
        "--rollup-mib",
        type=_between(1, MOST_ROLLUP_BYTES // MIB),
        metavar="N",
        default=DEFAULT_ROLLUP_BYTES // MIB,
        help=f"make files of so many MiB at most ({DEFAULT_ROLLUP_BYTES // MIB})",
    )
    parser.add_argument(
        "--open-age",
        type=_seconds,
        metavar="SECONDS",
        default=DEFAULT_OPEN_AGE_SECONDS,
        help=f"of open segments, take files that are older than that ({DEFAULT_OPEN_AGE_SECONDS:.0f})",
    )


def _compact(spark: "SparkSession", options: argparse.Namespace) -> None:
    done = compact(
        spark,
        _store_of(options),
        options.topic,
        rollup_bytes=options.rollup_mib * MIB,
        open_age_seconds=options.open_age,
    )
    # Also where nothing was left to do: an earlier run may have been killed before it said so.
    for untold in tell_of_rollups(options.url, options.topic):
        say(f"the files are rolled up, but a broker was not told: {untold}")
    for left in done.left:
        say(f"{left.files} files of segment {left.segment} stay as they are: {left.why_not}")
    if options.json:
        print_json(_compaction_document(options.topic, done))
        return
    print_lines(f"topic {options.topic}: {counted(done.files_before, 'file')}, now {done.files_after:,}")
    if done.rolled:
        before, after = _sizes(done.rolled)
        files = sum(each.files for each in done.rolled)
        rollups = counted(len(done.rolled), "roll-up")
        print_lines(f"{rollups} of {size(after)} in place of {counted(files, 'file')} of {size(before)}")


def _compaction_document(topic: str, done: Compaction) -> dict[str, object]:
    before, after = _sizes(done.rolled)
    return {
        "topic": topic,
        "files_before": done.files_before,
        "files_after": done.files_after,
        "rollups": len(done.rolled),
        "bytes_before": before,
        "bytes_after": after,
        "left": [{"segment": each.segment, "files": each.files, "why": each.why_not} for each in done.left],
    }


def _sizes(rolled: Sequence[Rolled]) -> tuple[int, int]:
    """Bytes of the files that were rolled up, and of what stands for them."""
    return sum(each.size_bytes for each in rolled), sum(each.rolled_bytes for each in rolled)


# -- export ------------------------------------------------------------------------------------------------------


def _add_export(parser: _Parser) -> None:
    parser.add_argument(
        "--to", metavar="DIR|s3://…", required=True, help="where the table is, or is to be: nothing else lies there"
    )
    parser.add_argument(
        "--format", choices=get_args(TableFormat), default="parquet", help="the table's format (parquet)"
    )
    parser.add_argument(
        "--partition-by",
        choices=get_args(PartitionBy),
        help="of Parquet: a folder for each day, by the broker's time (timestamp, the default) or the producer's",
    )
    parser.add_argument(
        "--in-place", action="store_true", help="of Iceberg: refer to sealed files that are final, copy the rest"
    )
    parser.add_argument(
        "--table", metavar="NAMESPACE.NAME", help="of Iceberg: the table's name (braidmq, and that of the topic)"
    )
    parser.add_argument(
        "--catalog",
        metavar="URL",
        help="of Iceberg: an SQL database; by default a file of SQLite in the table's folder",
    )
    parser.add_argument(
        "--skip-expired", action="store_true", help="go on where retention has taken what was never exported"
    )


def _export(spark: "SparkSession", options: argparse.Namespace) -> None:
    export, finish = _export_of(options)
    done = export_topic(spark, export, finish)
    if options.json:
        document = {"topic": export.topic, "runs": done.runs, "messages": done.messages}
        print_json({**document, "by_reference": done.by_reference})
    elif not done.runs:
        print_lines(f"topic {export.topic}: nothing new")
    else:
        referred = f", {done.by_reference:,} of them by reference" if done.by_reference else ""
        print_lines(f"topic {export.topic}: {counted(done.messages, 'message')} added{referred}")


def _export_of(options: argparse.Namespace) -> tuple[Export, FinishRun]:
    """What is asked for; raises `WrongUsage` for options of the other format."""
    is_iceberg = options.format == "iceberg"
    for name in ("partition_by",) if is_iceberg else ("in_place", "table", "catalog"):
        if getattr(options, name):
            raise WrongUsage(f"--{name.replace('_', '-')} is not for a table of format {options.format}")
    source = _store_of(options)
    export = Export(
        source,
        replace(source, url=options.to),
        options.topic,
        options.format,
        "none" if is_iceberg else options.partition_by or "timestamp",
        in_place=options.in_place,
        skip_expired=options.skip_expired,
    )
    return export, partial(iceberg_table.finish_run, _iceberg_of(options)) if is_iceberg else parquet_table.finish_run


def _iceberg_of(options: argparse.Namespace) -> IcebergTarget:
    # What it says of columns without statistics is so for every topic.
    logging.getLogger("pyiceberg").setLevel("ERROR")
    namespace, _, name = (options.table or f"braidmq.{options.topic}").partition(".")
    if not namespace or not name:
        raise WrongUsage(f"--table: {options.table!r} is not of the form NAMESPACE.NAME")
    return IcebergTarget(namespace, name, options.catalog)


# -- backfill ----------------------------------------------------------------------------------------------------


def _add_backfill(jobs: "argparse._SubParsersAction[_Parser]") -> None:
    help_line = "Load a table or files into a topic, past the brokers."
    parser: _Parser = jobs.add_parser("backfill", help=help_line, description=help_line)
    parser.set_defaults(job="backfill", command=_backfill)
    parser.add_argument("source", metavar="SOURCE", help="a file or folder, or with --format table a table's name")
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic, which must be there")
    _add_common_options(parser)
    parser.add_argument("--format", help="as Spark calls it; by default what the name ends with says, else parquet")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of that format; repeatable"
    )
    parser.add_argument("--key", metavar="COL", help="the column that is the key; without it messages have none")
    value = parser.add_mutually_exclusive_group(required=True)
    value.add_argument("--value", metavar="COL", help="the column that is the value")
    value.add_argument("--value-json", action="store_true", help="the whole row is the value, as JSON")
    parser.add_argument("--event-time", metavar="COL", help="the column that is the producer's own time")
    parser.add_argument("--order-by-event-time", action="store_true", help="messages of a key are in its order")
    parser.add_argument("--segments", type=_between(1, MOST_SEGMENTS), metavar="N", help="load into so many segments")
    parser.add_argument("--load", metavar="ID", help="what the load is called: go on with it where it was begun")


def _backfill(spark: "SparkSession", options: argparse.Namespace) -> None:
    if options.order_by_event_time and options.event_time is None:
        raise WrongUsage("--order-by-event-time needs --event-time")
    columns = Columns(options.key, options.value, options.event_time, options.order_by_event_time)
    done = backfill(
        spark, options.url, options.topic, _source_of(options), columns, segments=options.segments, load=options.load
    )
    if options.json:
        print_json(asdict(done))
    else:
        print_lines(
            f"topic {options.topic}: load {done.load} of {done.messages:,} messages in {done.segments} segments"
        )


def _source_of(options: argparse.Namespace) -> Source:
    given = dict(_name_and_value(each) for each in options.option)
    ending = Path(options.source.removesuffix(".gz")).suffix.removeprefix(".")
    table_format = options.format or _FORMATS.get(ending, "parquet")
    # The first line names the columns, as everywhere else in this project.
    defaults = {"header": "true"} if table_format == "csv" else {}
    return Source(options.source, table_format, {**defaults, **given})


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise WrongUsage(f"--option: {text!r} is not of the form NAME=VALUE")
    return name, value
