"""`mq pipeline backfill`: runs the job, and prints what it did."""

import argparse
import sys
from functools import partial

from filer.clock import SystemClock
from pipeline.backfill.backfill import backfill, preview
from pipeline.backfill.backfill_options import source_of
from pipeline.backfill.choices import Columns
from pipeline.brokers import check_topic
from pipeline.output import counted, print_json, print_lines, say
from pipeline.workers import Workers


def run_backfill(workers: Workers, options: argparse.Namespace) -> None:
    """Run the job and print its result. Raises any `BraidError`."""
    columns = Columns(
        options.key,
        options.value,
        options.event_time,
        options.order_by_event_time,
        options.event_time_unit,
        options.non_finite,
    )
    source = source_of(options)
    # Spark takes many seconds to start. A mistyped name, or a broker that is away, fails the command before that.
    check_topic(options.url, options.topic, options.timeout)
    if options.dry_run:
        found = preview(workers.spark(), options.url, options.topic, source, columns, timeout_seconds=options.timeout)
        warning = found.times.unlikely(SystemClock().now_us())
        found.show(f"load {source.path} into topic {options.topic}", warning, as_json=options.json)
        return
    load = options.load or SystemClock().ulid()
    options.go_on = () if options.load else ("--load", load)
    done = backfill(
        workers.spark(),
        options.url,
        options.topic,
        source,
        columns,
        segments=options.segments,
        load=load,
        timeout_seconds=options.timeout,
        confirm=partial(_confirm, ask=not options.yes and sys.stdin.isatty() and sys.stderr.isatty()),
    )
    segments = len(done.segments)
    if options.json:
        print_json({"topic": options.topic, "load": done.load, "messages": done.messages, "segments": segments})
    else:
        messages = counted(done.messages, "message")
        print_lines(f"topic {options.topic}: load {done.load} of {messages} in {counted(segments, 'segment')}")


def _confirm(warning: str, *, ask: bool) -> bool:
    """Warn, and ask whether to go on if a user can answer."""
    say(f"unlikely: {warning}; see --event-time and --event-time-unit")
    if not ask:
        return True
    sys.stderr.write("A load cannot be undone. Load it all the same? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
