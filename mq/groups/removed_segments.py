"""The segments behind a group's positions that retention has removed, by the topic's history."""

from collections.abc import Mapping
from contextlib import suppress

from filer.errors import UnreadableObject
from filer.topic.topic_state import Segment
from mq.topic.topic_runtime import TopicRuntime


async def removed_segments(
    runtime: TopicRuntime, positions: Mapping[int, int], known: dict[int, Segment | None]
) -> dict[int, Segment]:
    """Return the segments of these positions that topic.json has no longer, and removed segments behind them.

    `known` has what was read before, and is added to: None for a segment that is not in the history. Entries that are
    not asked for are dropped. Raises `StoreError`.
    """
    state = runtime.state
    found: dict[int, Segment | None] = {}
    waiting = [each for each in positions if state.segment(each) is None and each < state.next_segment]
    while waiting:
        segment_id = waiting.pop()
        if segment_id in found:
            continue
        if segment_id not in known:
            known[segment_id] = None
            # History that cannot be read, or was never written, is not counted.
            with suppress(UnreadableObject):
                known.update((each.id, each) for each in await runtime.history_from(segment_id))
        life = found[segment_id] = known[segment_id]
        waiting += [each for each in life.successors if state.segment(each) is None] if life is not None else []
    for segment_id in known.keys() - found.keys():
        del known[segment_id]
    return {segment_id: life for segment_id, life in found.items() if life is not None}
