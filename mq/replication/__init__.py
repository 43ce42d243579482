"""Replication of messages that are acknowledged before they are stored (docs/design.md §6).

`Followers` is the owner's side: it sends everything a segment accepts to the brokers that follow it. `ReplicaBuffers`
is the follower's side: it holds the messages until they are stored. `ReplicationLease` says whether an owner may still
acknowledge what only its followers hold. `EarlyFlush` in `mq/transitions` stores copies while they still count.
"""
