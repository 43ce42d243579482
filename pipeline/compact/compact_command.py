"""`mq pipeline compact`: its options and its output."""

import argparse
from collections.abc import Sequence

from filer.quantities import duration_text, size_text
from pipeline.brokers import announce_rollups
from pipeline.compact.compact import (
    DEFAULT_OPEN_AGE_SECONDS,
    DEFAULT_ROLLUP_BYTES,
    MOST_ROLLUP_BYTES,
    Compaction,
    Plan,
    Rolled,
    compact,
    planned,
)
from pipeline.options import MIB, JobParser, mebibytes_between, seconds, size_between, store_of
from pipeline.output import counted, print_json, print_lines, say, size
from pipeline.workers import Workers


def add_compact_options(parser: JobParser) -> None:
    """Add the options for the size of roll-ups and the age of files."""
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--rollup-size",
        type=size_between(MIB, MOST_ROLLUP_BYTES),
        metavar="SIZE",
        dest="rollup_bytes",
        default=DEFAULT_ROLLUP_BYTES,
        help=f"largest size of a roll-up ({size_text(DEFAULT_ROLLUP_BYTES)})",
    )
    sizes.add_argument(
        "--rollup-mib",
        type=mebibytes_between(1, MOST_ROLLUP_BYTES // MIB),
        metavar="N",
        dest="rollup_bytes",
        help="the same as a number of MiB",
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing; print what would be rolled up")
    parser.add_argument(
        "--open-age",
        type=seconds,
        metavar="DURATION",
        default=DEFAULT_OPEN_AGE_SECONDS,
        help=f"in open segments, roll up only files that are older ({duration_text(DEFAULT_OPEN_AGE_SECONDS)})",
    )


def run_compact(workers: Workers, options: argparse.Namespace) -> None:
    """Run the job, ask the brokers to take the roll-ups in, and print the result. Raises any `BraidError`."""
    store, rollup_bytes = store_of(options), options.rollup_bytes
    if options.dry_run:
        plan = planned(store, options.topic, rollup_bytes=rollup_bytes, open_age_seconds=options.open_age)
        _show_plan(options.topic, plan, as_json=options.json)
        return
    done = compact(workers, store, options.topic, rollup_bytes=rollup_bytes, open_age_seconds=options.open_age)
    # Even if nothing was left to do: an earlier run may have been killed before it asked them.
    for failure in announce_rollups(options.url, options.topic, options.timeout):
        say(f"the files are rolled up, but a broker was not asked to take them in: {failure}")
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


def _show_plan(topic: str, plan: Plan, *, as_json: bool) -> None:
    files = sum(len(run.files) for run in plan.runs)
    size_bytes = sum(file.size_bytes for run in plan.runs for file in run.files)
    after = plan.live_files - files + len(plan.runs)
    if as_json:
        print_json(
            {"dry_run": True, "topic": topic, "files_before": plan.live_files, "files_after": after}
            | {"rollups": len(plan.runs), "bytes_before": size_bytes}
        )
        return
    print_lines(f"topic {topic}: {counted(plan.live_files, 'file')}, would be {after:,}")
    if plan.runs:
        rollups = counted(len(plan.runs), "roll-up")
        print_lines(f"would write {rollups} in place of {counted(files, 'file')} of {size(size_bytes)}")


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
    """Bytes of the files that were rolled up, and of their roll-ups."""
    return sum(each.size_bytes for each in rolled), sum(each.rolled_bytes for each in rolled)
