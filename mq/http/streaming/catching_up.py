"""Readers that fall behind, if the topic has `overflow: drop_oldest`."""

from filer.topic.positions import Positions
from mq.topic.topic_runtime import TopicRuntime


def catch_up(runtime: TopicRuntime, positions: Positions, live: set[int]) -> Positions:
    """Under `overflow: drop_oldest`, a reader that falls behind the front store goes on at its oldest message.

    `live` collects the segments in which the reader has reached the front store. A reader that starts from older
    messages first reads those from files.
    """
    if runtime.state.config.overflow != "drop_oldest":
        return positions
    caught_up = dict(positions)
    for segment_id, offset in positions.items():
        tail = runtime.reads.tail(segment_id)
        if tail is not None and offset >= tail.start:
            live.add(segment_id)
        elif tail is not None and segment_id in live:
            caught_up[segment_id] = tail.start
    return caught_up
