"""A topic as one broker runs it: publishing to it, reading from it, and following its state.

`TopicRuntime` holds the parts of a running topic together; begin reading there. `TopicPublisher` cuts requests by key
range and appends them, `OwnedSegments` has the writers of this broker's segments, `TopicReads` answers readers'
questions, and `TopicReader` reads pages from it. `TopicRegistry` has all topics of a broker by name. Segments of other
brokers are in `mq/forwarding`.
"""
