"""Flights per carrier, counted by a Spark streaming query in a separate driver:

    python -m tests.support.topic.carrier_counts URL TOPIC FOLDER [BATCH]

`FOLDER` gets the checkpoint, and a file for each micro-batch of the counts that it changed. In the micro-batch `BATCH`
the driver stands still once the file is there, before Spark knows that it is, and waits to be killed. When its stdin
ends it counts all there is and ends.
"""

import json
import os
import sys
import threading
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from braidmq.spark import register
from tests.support.spark.session import spark_session
from tests.support.topic.flights import ROW

CHECKPOINT = "checkpoint"
BATCH_ROWS = 60_000
# Where one row more or less is counted, the sums tell, also where their number is right.
COUNTS = ("flights", "rows", "squares")

Counts = dict[str, list[int]]


class BatchFiles:
    """A sink that stores each micro-batch once, however often it is run."""

    def __init__(self, folder: Path, stand_still_in: int | None = None) -> None:
        self._folder, self._stand_still_in = folder, stand_still_in

    def path(self, batch: int) -> Path:
        """The file with the counts of a micro-batch."""
        return self._folder / f"{batch:06d}.json"

    def take(self, changed: DataFrame, batch: int) -> None:
        """Store the counts of a micro-batch, for `foreachBatch`. A repeated micro-batch must have the same counts."""
        counts = {row.carrier: [row[name] for name in COUNTS] for row in changed.orderBy("carrier").collect()}
        path = self.path(batch)
        assert not path.exists() or json.loads(path.read_text()) == counts, f"micro-batch {batch} is not the same again"
        whole = path.with_suffix(".whole")
        whole.write_text(json.dumps(counts))
        whole.rename(path)
        if batch == self._stand_still_in:
            threading.Event().wait()

    def counts(self) -> Counts:
        """The newest counts of each carrier."""
        newest: Counts = {}
        for path in sorted(self._folder.glob("*.json")):
            newest |= json.loads(path.read_text())
        return newest


def plain_counts(flights: pd.DataFrame) -> Counts:
    """The same counts for all flights, by pandas."""
    numbered = flights.assign(squares=flights[ROW] ** 2).groupby("carrier")
    counts = numbered.agg(flights=(ROW, "size"), rows=(ROW, "sum"), squares=("squares", "sum"))
    return {str(carrier): [int(row[name]) for name in COUNTS] for carrier, row in counts.iterrows()}


def main(url: str, topic: str, folder: Path, stand_still_in: int | None) -> None:
    sink = BatchFiles(folder, stand_still_in)
    with spark_session() as spark:
        register(spark)
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS)}
        messages = spark.readStream.format("braidmq").options(url=url, topic=topic, **options).load()
        flights = messages.select(f.from_json("value", f"carrier STRING, {ROW} LONG").alias("flight")).select(
            "flight.*"
        )
        sums = (f.count("*"), f.sum(ROW), f.sum(f.col(ROW) * f.col(ROW)))
        named = [column.alias(name) for column, name in zip(sums, COUNTS, strict=True)]
        writer = flights.groupBy("carrier").agg(*named).writeStream.outputMode("update").foreachBatch(sink.take)
        query = writer.option("checkpointLocation", str(folder / CHECKPOINT)).start()

        def finish() -> None:
            os.read(sys.stdin.fileno(), 1)
            query.processAllAvailable()
            query.stop()

        threading.Thread(target=finish, daemon=True).start()
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else None)
