"""Requests about topics: create, configure, delete, split and merge them, and count the segments of each broker.

Begin with `topic_administration`. It decides what a request may do, changes topic.json by compare-and-swap, and leaves
every transition to `mq.transitions`. `segment_counts` counts for `GET /v1/cluster`.
"""
