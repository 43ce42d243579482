"""Batch reads: the data source's batch reader, and the files that Spark's own Parquet reader can read.

`batch_reader.py` serves `spark.read.format("braidmq")`; `native_files.py` serves `braidmq.spark.read`. Both build on
`spark.partitions`.
"""
