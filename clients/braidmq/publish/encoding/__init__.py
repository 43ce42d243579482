"""Turns users' input into brokers' input: messages and tables into columns, columns into Arrow streams.

`outgoing` is one message, `tables` the tables of pyarrow, pandas and Polars, `json_rows` columns as JSON text. `wire`
makes the bounded Arrow streams. `shares` cuts rows by the segments that their keys belong to. Begin with `outgoing`.
"""
