"""Where the tasks of a job run in a test: in this process, or on Spark however little there is to do."""

from typing import TYPE_CHECKING

from pipeline.workers import Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _no_spark() -> "SparkSession":
    raise AssertionError("Spark was started")


HERE = Workers(_no_spark)


def on_spark(spark: "SparkSession") -> Workers:
    """Workers of which even the smallest task runs on the session."""
    return Workers(lambda: spark, most_files=0)
