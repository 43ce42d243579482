"""A topic as a query of other engines, with each message once (docs/file-format.md, which files count).

`engines` has the engines of `mq files sql`, with a module for each. DuckDB, Polars and Spark list the names first, and
read the files that count. Athena, which lists only while it reads, takes one of the copies of a message.
"""
