"""Consumer groups at a broker.

`group_topic.py` makes the topic that holds what groups must not forget (docs/design.md §12).
"""
