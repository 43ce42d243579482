"""Retention as pure functions: which messages expire, and the topic's state after that decision (docs/design.md §4).

Both times of a file count: that of its last message, by the owner's clock, and the store's when it was stored. If the
owner's clock was behind, or stood still, messages have an early timestamp; they do not expire early for it. If it was
ahead, they have a late one; they stay that much longer. "Now" is the store's time.

A decision first moves a segment's `start_offset` in topic.json; the files are deleted a grace period later. Whole files
expire, and never the newest file of an open segment: its name keeps a stalled writer from beginning there again.

A topic that serves as a memory, such as that of consumer groups, has *floors* instead (`plan_floors`).
"""

import heapq
from collections.abc import Collection, Iterator, Mapping
from itertools import islice, takewhile

from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.topic.topic_config import Retention
from filer.topic.topic_state import Removal, Segment, TopicState


def plan_retention(state: TopicState, indexes: Mapping[int, SegmentIndex], now_us: int) -> dict[int, int]:
    """The new start offset of each segment from which files expire.

    By age: every file whose last message is older than `retention.seconds` by both clocks. By size: the oldest files of
    the whole topic, until the rest is within `retention.bytes`. That is decided only if `indexes` has every segment.
    """
    retention = state.config.retention
    starts: dict[int, int] = {}
    if retention.seconds is not None:
        _by_age(state, indexes, now_us - int(retention.seconds * 1e6), starts)
    if retention.bytes is not None and all(s.id in indexes for s in state.segments):
        _by_size(state, indexes, retention.bytes, starts)
    _pass_given_up(state, indexes, starts)
    return {i: start for i, start in starts.items() if _start_of(state, i) < start}


def _pass_given_up(state: TopicState, indexes: Mapping[int, SegmentIndex], starts: dict[int, int]) -> None:
    """Let segments start behind what is given up there: nothing is left of it that could expire."""
    for segment in state.segments:
        if segment.given_up and segment.id in indexes:
            start = starts.get(segment.id, segment.start_offset)
            while (hole := indexes[segment.id].hole_at(start)) is not None and hole.given_up:
                start = hole.end
            starts[segment.id] = start


def plan_floors(state: TopicState, indexes: Mapping[int, SegmentIndex], floors: Mapping[int, int]) -> dict[int, int]:
    """The new start offset of each segment with files that are not needed any more: for topics with floors alone.

    `floors` come from the code that uses the topic as its memory, by segment. Below a floor, nothing of the segment is
    needed, and *nothing of the segments before it*, as far as keys of its range go: newer messages behind the floor
    stand in for it. That holds for ever, for every broker, however late it learns the floor: a log only grows.

    So a sealed segment goes once that holds for all its successors. Its heirs may be at different brokers, which know
    only their own floors. But in such a topic only a floor moves a start offset. So a successor that begins behind 0
    has had one.
    """
    starts: dict[int, int] = {}
    passed: set[int] = set()
    for segment in sorted(state.segments, key=lambda s: s.id, reverse=True):  # successors have higher ids
        is_inherited = bool(segment.successors) and passed.issuperset(segment.successors)
        if is_inherited or segment.id in floors or segment.start_offset > 0:
            passed.add(segment.id)
        if is_inherited and segment.end_offset is not None:
            starts[segment.id] = segment.end_offset
        elif segment.id in floors and segment.id in indexes:
            starts[segment.id] = _end_of_needless(segment, indexes[segment.id], floors[segment.id])
    return {i: start for i, start in starts.items() if _start_of(state, i) < start}


def _end_of_needless(segment: Segment, index: SegmentIndex, floor: int) -> int:
    """The end of the last file that lies below the floor; 0 if there is none."""
    below = takewhile(lambda facts: facts.end <= floor, _expirable(segment, index))
    return max((facts.end for facts in below), default=0)


def _start_of(state: TopicState, segment_id: int) -> int:
    segment = state.segment(segment_id)
    return 0 if segment is None else segment.start_offset


def _expirable(segment: Segment, index: SegmentIndex) -> Iterator[FileFacts]:
    """The files that may expire, oldest first; the new start offset is the end of the last one that does."""
    count = len(index.files) if segment.state == "sealed" else len(index.files) - 1
    for facts in islice(index.files, max(count, 0)):
        if facts.count and facts.end > segment.start_offset:
            yield facts


def _by_age(state: TopicState, indexes: Mapping[int, SegmentIndex], oldest_us: int, starts: dict[int, int]) -> None:
    for segment in state.segments:
        if segment.id not in indexes:
            continue
        for facts in _expirable(segment, indexes[segment.id]):
            if facts.newest_us >= oldest_us:
                break
            starts[segment.id] = facts.end


def has_expired(segment: Segment, index: SegmentIndex, retention: Retention, now_us: int) -> bool:
    """Whether all messages of an open segment have expired by age, so that only its being open keeps the newest.

    False if nothing is left of it, and if its last file is damaged: it cannot be sealed.
    """
    if retention.seconds is None or index.blocked is not None or not index.files:
        return False
    newest = index.files[-1]
    return newest.end > segment.start_offset and newest.newest_us < now_us - int(retention.seconds * 1e6)


def _by_size(state: TopicState, indexes: Mapping[int, SegmentIndex], limit_bytes: int, starts: dict[int, int]) -> None:
    queues = {s.id: _expirable(s, indexes[s.id]) for s in state.segments}
    size_bytes = sum(_kept_bytes(s, indexes[s.id]) for s in state.segments)
    oldest: list[tuple[int, int, FileFacts]] = []
    waiting = list(queues)
    while size_bytes > limit_bytes:
        for segment_id in waiting:
            for facts in islice(queues[segment_id], 1):
                heapq.heappush(oldest, (facts.last_timestamp_us, segment_id, facts))
        if not oldest:
            return
        _, segment_id, facts = heapq.heappop(oldest)
        size_bytes -= facts.size_bytes
        starts[segment_id] = max(starts.get(segment_id, 0), facts.end)
        waiting = [segment_id]


def _kept_bytes(segment: Segment, index: SegmentIndex) -> int:
    expired = takewhile(lambda facts: facts.end <= segment.start_offset, index.files)
    return index.size_bytes - sum(facts.size_bytes for facts in expired)


def with_starts(state: TopicState, starts: Mapping[int, int]) -> TopicState | None:
    """The state in which these segments start at the given offsets or later; None if that changes nothing."""
    segments = tuple(
        s.model_copy(update={"start_offset": _limited(s, starts[s.id])}) if s.id in starts else s
        for s in state.segments
    )
    return None if segments == state.segments else state.model_copy(update={"segments": segments})


def _limited(segment: Segment, start: int) -> int:
    within = start if segment.end_offset is None else min(start, segment.end_offset)
    return max(segment.start_offset, within)


def removable(state: TopicState, now_us: int, *, grace_seconds: float, has_floors: bool = False) -> list[Segment]:
    """The segments that may leave topic.json: sealed, emptied by retention, and first in their lineage.

    Each stays after its seal for as long as retention keeps messages (at least a grace period), so that a position at
    its end continues in its successors. The predecessors of a merge leave together: a position at the end of one waits
    there for the others, and a reader that starts at the earliest position finds all slots. Nothing is removed from a
    topic that has neither retention nor floors.
    """
    retention: Retention = state.config.retention
    if retention.seconds is None and retention.bytes is None and not has_floors:
        return []
    keep_us = int(max(retention.seconds or 0.0, grace_seconds) * 1e6)
    by_id = {s.id: s for s in state.segments}
    leaving = {
        s.id: s
        for s in state.segments
        if s.emptied and by_id.keys().isdisjoint(s.predecessors) and now_us - (s.sealed_us or 0) >= keep_us
    }
    while waiting := [s for s in leaving.values() if not _kin(s, by_id) <= leaving.keys()]:
        for segment in waiting:
            del leaving[segment.id]
    return list(leaving.values())


def _kin(segment: Segment, by_id: Mapping[int, Segment]) -> set[int]:
    """All predecessors of the segment's successors, as far as topic.json still has them."""
    successors = (by_id[i] for i in segment.successors if i in by_id)
    return {p for successor in successors for p in successor.predecessors if p in by_id}


def without_segments(state: TopicState, removed: Collection[int], now_us: int) -> TopicState | None:
    """The state without these segments. Their files are deleted a grace period from now. None for no change."""
    leaving = [s for s in state.segments if s.id in removed]
    if not leaving:
        return None
    removals = (*state.removals, *(Removal(segment=s.id, since_us=now_us) for s in leaving))
    return state.model_copy(
        update={"segments": tuple(s for s in state.segments if s not in leaving), "removals": removals}
    )


def without_removal(state: TopicState, segment_id: int) -> TopicState | None:
    """The state once the files of a removed segment are deleted; None for no change."""
    left = tuple(removal for removal in state.removals if removal.segment != segment_id)
    return None if left == state.removals else state.model_copy(update={"removals": left})
