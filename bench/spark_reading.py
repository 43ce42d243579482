"""How fast Spark reads a topic, as a ratio to `spark.read.parquet` of the same files, in one run.

    python bench/spark_reading.py [--rounds 5] [--messages 5000000]

A local Spark with two threads, a real `mq serve`, its files in memory (/dev/shm). See bench/README.md.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

from bench.harness.bulk_sending import LOADED, VALUE_BYTES, send
from bench.harness.publishing import TOPIC
from bench.harness.running import console, machine, show_progress
from bench.harness.server_process import BenchFailed, broker
from braidmq.spark import read, register

MESSAGES = 5_000_000
SEGMENTS = 4
PARQUET, NATIVE, SOURCE, STREAM = "spark.read.parquet", "braidmq.spark.read", 'format("braidmq")', "readStream"
STARTED = "readStream, its start included"
TARGETS = {NATIVE: 0.9, STREAM: 0.35}
COUNT, PROJECTION, WHOLE = "count", "two columns", "all columns"
CASES: dict[str, Callable[[DataFrame], DataFrame]] = {
    COUNT: lambda frame: frame.groupBy().count(),
    PROJECTION: lambda frame: frame.select("key", "_offset"),
    WHOLE: lambda frame: frame,
}


def main() -> None:
    options = _options()
    try:
        with broker() as (url, data), _session() as spark, tempfile.TemporaryDirectory() as folder:
            httpx.put(f"{url}/v1/topics/{TOPIC}", json={"segments": SEGMENTS}).raise_for_status()
            send(LOADED, url, options.messages, SEGMENTS)
            register(spark)
            bench = _Bench(spark, url, data / "topics" / TOPIC / "segments", Path(folder), options.messages)
            rates = bench.run(options.rounds)
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    screen = console()
    about = f"{machine()}; {options.messages:,} messages of {VALUE_BYTES} B, medians of {options.rounds} rounds"
    screen.print(about, markup=False)
    screen.print(_table(rates))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count; one more warms up (5)")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"messages of {VALUE_BYTES} B ({MESSAGES})")
    options = parser.parse_args()
    if options.rounds < 1 or options.messages < 1:
        parser.error("--rounds and --messages must be 1 or more")
    return options


@contextmanager
def _session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = Path(__file__).parents[1]
    os.environ["PYTHONPATH"] = f"{root}{os.pathsep}{root / 'clients'}"
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


class _Bench:
    """Reads one topic in all variants."""

    def __init__(self, spark: SparkSession, url: str, segments: Path, scratch: Path, messages: int) -> None:
        self._spark, self._url, self._segments, self._scratch = spark, url, segments, scratch
        self._messages = messages
        self._frames: Mapping[str, Callable[[], DataFrame]] = {
            PARQUET: lambda: spark.read.parquet(str(segments)),
            NATIVE: lambda: read(spark, TOPIC, url=url),
            SOURCE: lambda: spark.read.format("braidmq").option("url", url).option("topic", TOPIC).load(),
        }

    def run(self, rounds: int) -> dict[tuple[str, str], list[float]]:
        """Messages per second by variant and case, per round. All include planning."""
        variants = [
            (variant, case) for case in CASES for variant in (*self._frames, *([STREAM] if case == WHOLE else []))
        ]
        rates: dict[tuple[str, str], list[float]] = {each: [] for each in (*variants, (STARTED, WHOLE))}
        for number in range(rounds + 1):
            for variant, case in random.sample(variants, len(variants)):
                show_progress(f"round {number} of {rounds}: {variant}, {case}")
                for measured, seconds in self._measured(variant, case, str(self._scratch / f"checkpoint-{number}")):
                    if number:
                        rates[measured, case].append(self._messages / seconds)
        return rates

    def _measured(self, variant: str, case: str, checkpoint: str) -> list[tuple[str, float]]:
        """What was measured, and the seconds that it took."""
        started = time.perf_counter()
        if variant == STREAM:
            batch_seconds = self._stream(checkpoint)
            return [(STREAM, batch_seconds), (STARTED, time.perf_counter() - started)]
        self._read(self._frames[variant](), case)
        return [(variant, time.perf_counter() - started)]

    def _read(self, frame: DataFrame, case: str) -> None:
        wanted = CASES[case](frame)
        if case != COUNT:
            wanted.write.format("noop").mode("overwrite").save()
        elif (found := wanted.collect()[0][0]) != self._messages:
            raise BenchFailed(f"{found} messages were counted instead of {self._messages}")

    def _stream(self, checkpoint: str) -> float:
        """The seconds that the micro-batches took, including planning and checkpoints."""
        source = self._spark.readStream.format("braidmq").option("url", self._url).option("topic", TOPIC)
        stream = source.option("startingOffsets", "earliest").load().writeStream.format("noop")
        query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        found = sum(progress["numInputRows"] for progress in query.recentProgress)
        if found != self._messages:
            raise BenchFailed(f"{found} messages were streamed instead of {self._messages}")
        return float(sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000)


def _table(rates: Mapping[tuple[str, str], list[float]]) -> Table:
    table = Table("case")
    for title in ("messages/s", "ratio", "target", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for (variant, case), measured in rates.items():
        rate = statistics.median(measured)
        ratio = rate / statistics.median(rates[PARQUET, case])
        target = TARGETS.get(variant)
        met = "" if target is None else "met" if ratio >= target else "missed"
        shown = "" if target is None else f"{target:.2f}"
        table.add_row(f"{case}, {variant}", f"{rate:,.0f}", "" if variant == PARQUET else f"{ratio:.2f}", shown, met)
    return table


if __name__ == "__main__":
    main()
