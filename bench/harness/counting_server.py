"""A broker that reports at its end what counting traffic has cost, or a broker that counts nothing.

    python -m bench.harness.counting_server counted|uncounted REPORT serve [options of mq serve]

`REPORT` gets, for stored and for read messages, the processor time since the first count, and the part of it spent on
counting. For stored messages that includes reporting to the leader.
"""

import json
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from leader.traffic.traffic_averages import SegmentTraffic
from mq.cli.main import run
from mq.traffic.topic_traffic import TopicTraffic
from mq.traffic.traffic_reporter import TrafficReporter


class Spent:
    """All processor time, and the part spent on one kind of counting."""

    def __init__(self) -> None:
        self.counting_seconds = self._began_seconds = self._ended_seconds = 0.0

    def since(self, began_seconds: float) -> None:
        """Add the time of a count that began at `began_seconds` and has just ended."""
        self.counting_seconds += time.thread_time() - began_seconds
        self._ended_seconds = time.process_time()
        self._began_seconds = self._began_seconds or self._ended_seconds

    def report(self) -> dict[str, float]:
        """The figures for the report."""
        processor_seconds = self._ended_seconds - self._began_seconds
        return {"counting_seconds": self.counting_seconds, "processor_seconds": processor_seconds}


STORED, READ = Spent(), Spent()


class TimedTraffic(TopicTraffic):
    """The real `TopicTraffic`, timed."""

    def count(self, segment: int, table: pa.Table, size_bytes: int) -> None:
        began_seconds = time.thread_time()
        super().count(segment, table, size_bytes)
        STORED.since(began_seconds)

    def count_read(self, segment: int, messages: int, size_bytes: int) -> None:
        began_seconds = time.thread_time()
        super().count_read(segment, messages, size_bytes)
        READ.since(began_seconds)


class TimedReporter(TrafficReporter):
    """The real `TrafficReporter`, timed. A single broker reports to itself, so it never waits."""

    async def report(self) -> None:
        began_seconds = time.thread_time()
        await super().report()
        STORED.counting_seconds += time.thread_time() - began_seconds


class NoTraffic(TopicTraffic):
    """Counts and reports nothing."""

    def count(self, segment: int, table: pa.Table, size_bytes: int) -> None:
        return

    def count_read(self, segment: int, messages: int, size_bytes: int) -> None:
        return

    def tick(self) -> list[SegmentTraffic]:
        return []


def main() -> None:
    side, report, *arguments = sys.argv[1:]
    if side == "counted":
        with (
            patch("mq.topic.topic_runtime.TopicTraffic", TimedTraffic),
            patch("mq.broker.TrafficReporter", TimedReporter),
        ):
            code = run(arguments)
    else:
        with patch("mq.topic.topic_runtime.TopicTraffic", NoTraffic):
            code = run(arguments)
    Path(report).write_text(json.dumps({"stored": STORED.report(), "read": READ.report()}), "utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
