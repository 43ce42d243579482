"""Spark looks for packages that are called `pyspark_…`: so every session knows the data source `braidmq` by itself."""

from braidmq.spark.source import BraidSource as DefaultSource

__all__ = ["DefaultSource"]
