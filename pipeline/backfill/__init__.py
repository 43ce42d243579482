"""`mq pipeline backfill`: bulk-load a table that Spark can read into a topic.

`backfill.py` turns the rows into messages and has `braidmq.spark.load` load them. `backfill_options.py` has the
options, `choices.py` what they choose, and `backfill_command.py` the output.
"""
