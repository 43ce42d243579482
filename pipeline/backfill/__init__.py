"""`mq pipeline backfill`: bulk-load a table that Spark can read into a topic.

`backfill.py` turns the rows into messages and has `braidmq.spark.load` load them; `backfill_command.py` has the options
and the output.
"""
