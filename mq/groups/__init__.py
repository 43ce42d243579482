"""Consumer groups at a broker (docs/design.md §12).

`group_topic.py` creates the topic that holds what groups must not forget. `groups.py` knows which groups this broker
coordinates, and `group_source.py` where their messages are. `segment_groups.py` has those of one segment, with its
`group_log.py`; `queue_group.py` runs a queue group, with its `message_feed.py` and `dead_letters.py`, and
`stream_group.py` a stream group. Begin with `queue_group.py`.
"""
