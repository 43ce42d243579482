"""Read a topic on a Spark cluster in every possible way, in a separate driver:

    python -m tests.support.cluster.cluster_reads MASTER URL TOPIC FOLDER

`FOLDER` gets a file of each, of keys and values in the order of a topic's readers.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from braidmq.spark import read, register
from tests.support.spark.session import spark_session

BY_READ, BY_SOURCE, BY_STREAM = "read", "source", "stream"


def main(master: str, url: str, topic: str, folder: Path) -> None:
    def write(frame: DataFrame, name: str) -> None:
        rows = frame.orderBy("segment", "_offset").selectExpr("cast(key as string)", "cast(value as string)").collect()
        with (folder / name).open("a") as file:
            file.writelines(json.dumps([row.key, row.value]) + "\n" for row in rows)

    with spark_session(master) as spark:
        register(spark)
        options = {"url": url, "topic": topic}
        write(read(spark, topic, url=url), BY_READ)
        write(spark.read.format("braidmq").options(**options).load(), BY_SOURCE)
        messages = spark.readStream.format("braidmq").options(**options, startingOffsets="earliest").load()
        writer = messages.writeStream.foreachBatch(lambda frame, batch: write(frame, BY_STREAM))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
