"""The layer over object storage. All durable state goes through it; it knows no brokers, no leader and no HTTP.

From the bottom up: `stores/` keeps objects, `format/` is the format of segment files, `topic/` has the record of a
topic, `segment/` appends to one segment and reads it, `bulk_load/` writes and checks files that are adopted whole, and
`upkeep/` rolls files up and deletes them. The modules here serve all of these: `keys.py` has every key that is written,
`slots.py` the key space, `clock.py` and `times.py` the time. Begin with `keys.py` and `stores/store.py`.
"""
