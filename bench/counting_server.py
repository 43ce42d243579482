"""A broker that tells at its end what counting its load has cost, or one that counts nothing: for the bench only.

    python -m bench.counting_server counted|uncounted REPORT serve [options of mq serve]

`REPORT` gets, for what is stored and for what is read, the processor time since the first count, and the part of it
that counting took. Reporting is part of the former.
"""

import json
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from leader.load_averages import SegmentLoad
from mq.cli.main import run
from mq.load_reporter import LoadReporter
from mq.topic_loads import TopicLoads


class Spent:
    """Processor time, all of it and the part spent on one kind of counting."""

    def __init__(self) -> None:
        self.counting_seconds = self._began_seconds = self._ended_seconds = 0.0

    def since(self, began_seconds: float) -> None:
        """What was begun then is counting, and has come to its end."""
        self.counting_seconds += time.thread_time() - began_seconds
        self._ended_seconds = time.process_time()
        self._began_seconds = self._began_seconds or self._ended_seconds

    def told(self) -> dict[str, float]:
        """As the report has it."""
        processor_seconds = self._ended_seconds - self._began_seconds
        return {"counting_seconds": self.counting_seconds, "processor_seconds": processor_seconds}


STORED, READ = Spent(), Spent()


class TimedLoads(TopicLoads):
    """The real one, timed."""

    def count(self, segment: int, table: pa.Table, size_bytes: int) -> None:
        began_seconds = time.thread_time()
        super().count(segment, table, size_bytes)
        STORED.since(began_seconds)

    def count_read(self, segment: int, messages: int, size_bytes: int) -> None:
        began_seconds = time.thread_time()
        super().count_read(segment, messages, size_bytes)
        READ.since(began_seconds)


class TimedReporter(LoadReporter):
    """The real one, timed: a broker alone tells itself, so nothing is waited for."""

    async def report(self) -> None:
        began_seconds = time.thread_time()
        await super().report()
        STORED.counting_seconds += time.thread_time() - began_seconds


class NoLoads(TopicLoads):
    """Counts and reports nothing."""

    def count(self, segment: int, table: pa.Table, size_bytes: int) -> None:
        return

    def count_read(self, segment: int, messages: int, size_bytes: int) -> None:
        return

    def tick(self) -> list[SegmentLoad]:
        return []


def main() -> None:
    side, report, *arguments = sys.argv[1:]
    if side == "counted":
        with patch("mq.topic_runtime.TopicLoads", TimedLoads), patch("mq.broker.LoadReporter", TimedReporter):
            code = run(arguments)
    else:
        with patch("mq.topic_runtime.TopicLoads", NoLoads):
            code = run(arguments)
    Path(report).write_text(json.dumps({"stored": STORED.told(), "read": READ.told()}), "utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
