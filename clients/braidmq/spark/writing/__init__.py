"""Writes: the data source's writers, and bulk loads from data frames.

`sink.py` publishes rows under producer ids that make a repeated task harmless; `load.py` writes whole segments past
the brokers. `to_messages.py` makes messages of any rows, and `rows.py` requests of messages.
"""
