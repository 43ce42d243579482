"""`mq pipeline skew`: runs the job, and prints its report."""

import argparse

from pipeline.options import store_of
from pipeline.output import counted, print_json, print_lines, print_table, size
from pipeline.skew.skew import RangeCounts, SkewReport, measure_skew
from pipeline.workers import Workers


def run_skew(workers: Workers, options: argparse.Namespace) -> None:
    """Run the job and print the report. Raises any `BraidError`."""
    report = measure_skew(
        workers, store_of(options), options.topic, parts=options.parts, hottest=options.hottest, by=options.by
    )
    if options.json:
        print_json(_skew_document(report))
        return
    keyless = f", {report.keyless_messages:,} of them without a key" if report.keyless_messages else ""
    print_lines(
        f"topic {report.topic}: {counted(report.messages, 'message')} of {size(report.size_bytes)}{keyless}", ""
    )
    columns = ("messages", "size", f"share of {report.by}")
    print_table(("hottest slot", *columns), ((str(each.start), *_counts_row(each)) for each in report.hottest))
    print_lines("")
    rows = ((str(segment), _slots(each), *_counts_row(each)) for segment, each in report.segments)
    print_table(("open segment", "slots", *columns), rows)
    print_lines("")
    print_table(("suggested part", *columns), ((_slots(each), *_counts_row(each)) for each in report.parts))
    if report.cut_points:
        print_lines("", f"cut at {' '.join(map(str, report.cut_points))}")


def _counts_row(counts: RangeCounts) -> tuple[object, ...]:
    return counts.messages, size(counts.size_bytes), f"{counts.share:.1%}"


def _slots(counts: RangeCounts) -> str:
    return f"{counts.start}-{counts.stop - 1}"


def _skew_document(report: SkewReport) -> dict[str, object]:
    return {
        "topic": report.topic,
        "messages": report.messages,
        "bytes": report.size_bytes,
        "keyless_messages": report.keyless_messages,
        "by": report.by,
        "hottest": [{"slot": each.start, **_counts_document(each)} for each in report.hottest],
        "segments": [
            {"segment": segment, "range": [each.start, each.stop], **_counts_document(each)}
            for segment, each in report.segments
        ],
        "parts": [{"range": [each.start, each.stop], **_counts_document(each)} for each in report.parts],
        "cut_points": list(report.cut_points),
    }


def _counts_document(counts: RangeCounts) -> dict[str, object]:
    return {"messages": counts.messages, "bytes": counts.size_bytes, "share": round(counts.share, 6)}
