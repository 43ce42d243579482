"""Topics in Apache Spark.

`read` reads batches at the speed of Spark's own Parquet reader, `to_messages` makes messages of any rows, `load` makes
large writes as bulk loads, and `register` adds the data source `braidmq` for streams and all other reads and writes.
Needs `pip install 'braidmq[spark]'`, on the driver and on the executors. Begin with `source.py` and `native_read.py`;
the folders `batch`, `streaming` and `writing` do the work on top of the other modules here.
"""

from braidmq.spark.errors import DataLoss, InvalidOption
from braidmq.spark.native_read import read
from braidmq.spark.source import BraidSource, register
from braidmq.spark.writing.load import load
from braidmq.spark.writing.to_messages import to_messages

__all__ = ["BraidSource", "DataLoss", "InvalidOption", "load", "read", "register", "to_messages"]
