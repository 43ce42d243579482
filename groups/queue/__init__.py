"""Queue groups: consumers claim messages and ack them, one by one or in ranges.

`records.py` has the records of them, `progress.py` their sum, `claims.py` what the coordinator decides.
"""
