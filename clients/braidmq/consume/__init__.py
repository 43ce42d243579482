"""Consuming in groups: workers claim messages, work on them, and ack or release each.

Begin with `worker.py`: `claim_size.py` says how many messages it claims, `lease_keeper.py` has leases run on,
`decision_sender.py` sends acks and releases, put together by `decisions.py`. `group.py` creates and describes groups.
All calls to brokers are in `group_calls.py`. `consumer.py` is a member of a stream group: it reads the segments that it
is given, and commits how far it has come, by `member_calls.py`.
"""
