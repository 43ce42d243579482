"""Consuming in groups: workers claim messages, work on them, and ack or release each.

Begin with `worker.py`: `claim_size.py` decides how many messages it claims, `lease_keeper.py` keeps leases running,
`decision_sender.py` sends acks and releases, put together by `decisions.py`. `group.py` creates and describes groups.
All calls to brokers are in `group_calls.py`. `consumer.py` is a member of a stream group: it reads its assigned
segments, and commits how far it has come, by `member_calls.py`.
"""
