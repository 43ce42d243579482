"""How many bytes topics have on the store, without asking the store."""

from collections.abc import Iterable

from mq.topic.topic_runtime import TopicRuntime


async def stored_bytes(topics: Iterable[TopicRuntime]) -> int:
    """The bytes of the files that these topics keep, as they were stored first: rolled up they take less.

    Owners of open segments are asked one after the other. Raises `BraidError`.
    """
    return sum([await _of_topic(runtime) for runtime in topics if not runtime.state.deleted])


async def _of_topic(runtime: TopicRuntime) -> int:
    total = 0
    for segment in runtime.state.segments:
        end, size_bytes = segment.end_offset, segment.stored_bytes
        if end is None:
            end, size_bytes = await runtime.reads.carried(segment.id)
        total += kept_bytes(size_bytes or 0, segment.start_offset, end)
    return total


def kept_bytes(size_bytes: int, start: int, end: int) -> int:
    """What is left of a segment whose messages before `start` have expired, as if all were of one size."""
    return size_bytes * (end - start) // end if end else 0
