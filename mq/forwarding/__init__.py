"""Segments that other brokers own: forwards publishes to them, and reads their newest messages.

`RemoteSegments` has both by segment id; begin reading there. `RemoteSegment` forwards messages published here to the
segment's owner, in calls that a `ForwardBatcher` collects. `RemoteTail` follows the owner's newest messages for readers
of this broker.
"""
