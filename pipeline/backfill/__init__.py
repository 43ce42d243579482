"""`mq pipeline backfill`: bulk-load a table that Spark can read into a topic.

`backfill.py` turns the rows into messages and loads them by `braidmq.spark.load`. `backfill_options.py` has the
options, `choices.py` their values, and `backfill_command.py` the output.
"""
