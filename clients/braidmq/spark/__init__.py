"""Topics in Apache Spark: `read` for batches, at the speed of Spark's own Parquet reader, `load` for large writes, and
`register` for the data source: streams, and all other reads and writes.

Needs `pip install 'braidmq[spark]'`, on the driver and on the executors.
"""

from braidmq.spark.errors import DataLoss, InvalidOption
from braidmq.spark.load import load
from braidmq.spark.native import read
from braidmq.spark.source import BraidSource, register

__all__ = ["BraidSource", "DataLoss", "InvalidOption", "load", "read", "register"]
