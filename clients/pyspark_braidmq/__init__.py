"""Makes the data source `braidmq` available in every session: Spark looks for packages named `pyspark_…`."""

from braidmq.spark.source import BraidSource as DefaultSource

__all__ = ["DefaultSource"]
