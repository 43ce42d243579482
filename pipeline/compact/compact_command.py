"""`mq pipeline compact`: runs the job, and prints what it did."""

import argparse
from collections.abc import Sequence

from pipeline.brokers import announce_rollups
from pipeline.compact.compact import Compaction, Plan, Rolled, compact, planned
from pipeline.options import store_of
from pipeline.output import counted, print_json, print_lines, say, size
from pipeline.workers import Workers


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
    """Return the bytes of the files that were rolled up, and of their roll-ups."""
    return sum(each.size_bytes for each in rolled), sum(each.rolled_bytes for each in rolled)
