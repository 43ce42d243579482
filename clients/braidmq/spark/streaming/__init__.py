"""Streaming reads: micro-batches that are the same again after a restart.

`stream_offset.py` decides, in pure functions, which messages each micro-batch reads; begin there. `stream_reader.py`
connects it to Spark. It builds on `spark.partitions`.
"""
