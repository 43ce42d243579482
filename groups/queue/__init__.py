"""Queue groups: consumers claim messages and ack them, one by one or in ranges.

`records.py` is what is stored of them, `progress.py` what that adds up to, `claims.py` what the coordinator decides.
"""
