"""Jobs on Spark that read and write the files of a topic directly, past the brokers.

Each job has a folder: `compact/` rolls files up, `export/` keeps a table of Parquet or Iceberg up to date, `backfill/`
bulk-loads a table, and `skew/` counts messages per slot. In each, `<job>_command.py` has the options and the output.
Begin with `commands.py`, which names the jobs, and `topic_files.py`, which lists a topic's live files.
"""
