"""`mq pipeline export`: runs the job, and prints what it added."""

import argparse
import logging
from dataclasses import asdict, replace
from functools import partial

from filer.clock import SystemClock
from pipeline.errors import WrongUsage
from pipeline.export import iceberg_table, parquet_table
from pipeline.export.choices import InPlace
from pipeline.export.export import Export, Exported, FinishRun, Planned, export_topic, planned
from pipeline.export.export_options import iceberg_of
from pipeline.export.export_plan import MOST_PIECES
from pipeline.export.iceberg_compaction import Compacted, compact_table
from pipeline.export.schema_file import read_schema
from pipeline.export.table_columns import TableColumns, table_columns, with_types_of_iceberg
from pipeline.options import store_of
from pipeline.output import counted, print_json, print_lines, say, size
from pipeline.workers import Workers


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
    for column in done.hidden:
        say(
            f"the folders of this table hide its column {column!r} from readers that take columns from folders: read "
            "it without (hive_partitioning = false in DuckDB), or export to a new folder, where it is seen"
        )
    compacted = _compacted(workers, export, options) if options.compact else None
    if options.json:
        document = {"topic": export.topic, "runs": done.runs, "messages": done.messages}
        more = {} if compacted is None else {"compacted": asdict(compacted)}
        print_json({**document, "by_reference": done.by_reference, "unfit": done.unfit, **more})
        return
    if not done.runs:
        print_lines(f"topic {export.topic}: nothing new")
    else:
        referred = f", {done.by_reference:,} of them by reference" if done.by_reference else ""
        apart = f"; {done.unfit:,} put into {options.unfit_to}, since the schema does not fit" if done.unfit else ""
        print_lines(f"topic {export.topic}: {counted(done.messages, 'message')} added{referred}{apart}")
    if compacted is not None:
        print_lines(
            f"table: {counted(compacted.rewritten, 'file')} rewritten as {compacted.written:,}, "
            f"{counted(compacted.snapshots, 'snapshot')} and {counted(compacted.deleted, 'file')} deleted"
        )


def _compacted(workers: Workers, export: Export, options: argparse.Namespace) -> Compacted:
    return compact_table(workers, iceberg_of(options), export, SystemClock())


def _announce_copies(export: Export, plan: Planned) -> None:
    """Explain why a table in place copies messages all the same: the table itself does not show the reason."""
    for line in _copies_lines(export, plan):
        say(line)


def _copies_lines(export: Export, plan: Planned) -> list[str]:
    """Return what is copied although the table is in place, why, and how fewer would be."""
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
    """Return the export for the options, and the function that finishes its runs."""
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
    return export, partial(iceberg_table.finish_run, iceberg_of(options)) if is_iceberg else parquet_table.finish_run


def _columns_of(options: argparse.Namespace) -> TableColumns:
    """Return the columns for the options. Raises `JobFailed` and `InvalidInput`."""
    schema = None if options.schema is None else read_schema(options.schema)
    columns = table_columns(options.columns, schema)
    if options.format != "iceberg":
        return columns
    if "segment" not in columns.names:
        raise WrongUsage("--columns: an Iceberg table is partitioned by segment, so it needs that column")
    return with_types_of_iceberg(columns)
