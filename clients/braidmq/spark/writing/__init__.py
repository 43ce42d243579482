"""Writes: the data source's writers, and bulk loads from data frames.

`sink.py` publishes rows under producer ids that make a repeated task harmless; `load.py` writes whole segments past
the brokers. `rows.py` turns rows into messages for both.
"""
