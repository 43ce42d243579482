"""A topic as topic.json records it: its configuration, its segments and their lineage.

Begin with `topic_state`, the record and its invariants. `catalogue` reads it and changes it by compare-and-swap.
`topic_config` has every setting, `topic_schema` says what the messages are, `positions` moves readers along the
lineage, `reservations` are the segments that bulk loads reserve, and `cluster_record` says which cluster the store
belongs to.
`record_check` finds damage to records, `known_records` those that are older than others that were there.
"""
