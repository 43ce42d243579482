"""A checker for consumer groups: a load, what it saw, and whether that may be.

For queue groups begin with `queue_load`: publishers and workers that write down everything they send and are told
(`queue_history`). `queue_verdict` judges it. For stream groups `stream_load` has members (`stream_member`) that come
and go, and `stream_verdict` judges `stream_history`. `storm` runs either for as long as you like, with random faults.
"""
