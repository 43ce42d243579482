"""Topics in Apache Spark: `read` for batches at the speed of Spark's own Parquet reader, `register` for the rest.

Needs `pip install 'braidmq[spark]'`, on the driver and on the executors.
"""

from braidmq.spark.errors import DataLoss, InvalidOption
from braidmq.spark.native import read
from braidmq.spark.source import BraidSource, register

__all__ = ["BraidSource", "DataLoss", "InvalidOption", "read", "register"]
