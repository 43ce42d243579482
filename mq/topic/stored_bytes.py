"""The size of topics on the store, without asking the store."""

from collections.abc import Iterable

from mq.topic.topic_runtime import TopicRuntime


async def stored_bytes(topics: Iterable[TopicRuntime]) -> int:
    """Return the bytes of the files that these topics keep, as first stored: rolled up they take less.

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
    """Return what is left of a segment after messages before `start` have expired, as if all had the same size."""
    return size_bytes * (end - start) // end if end else 0
