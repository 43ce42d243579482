"""Throws mutated HTTP at two brokers, of which one has the fast path of publishes, and compares what they do.

Begin with `comparison`: `sides` are the two brokers, `http_bytes` makes what they get, and `pool` is
a proxy that pools connections to them. `python -m
tests.support.mutated_publishes --seconds 600` goes on for that long.
"""
