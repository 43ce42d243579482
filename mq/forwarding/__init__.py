"""Segments that other brokers own: forwarding publishes to them, and reading their newest messages.

`RemoteSegments` has both by segment id; begin reading there. `RemoteSegment` forwards what is published here to the
segment's owner, in calls that a `ForwardBatcher` puts together. `RemoteTail` follows the owner's newest messages for
readers of this broker.
"""
