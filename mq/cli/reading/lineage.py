"""What a topic's segments show of its order: which precede which, and which hold a key. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence

from braidmq.models import Segment


def ancestors(segments: Iterable[Segment], ids: Iterable[int]) -> frozenset[int]:
    """The segments of which these are successors, directly or not, as far as they still exist."""
    predecessors = {each.segment: each.predecessors for each in segments}
    found: set[int] = set()
    waiting = list(ids)
    while waiting:
        fresh = [each for each in predecessors.get(waiting.pop(), ()) if each not in found and each in predecessors]
        found.update(fresh)
        waiting += fresh
    return frozenset(found)


def chain_of(segments: Iterable[Segment], slot: int) -> list[Segment]:
    """The segments that hold the messages of a slot, in their order: ids grow from predecessors to successors."""
    covering = (each for each in segments if each.range[0] <= slot < each.range[1])
    return sorted(covering, key=lambda segment: segment.segment)


def count_between(segments: Sequence[Segment], start: Mapping[int, int], end: Mapping[int, int]) -> int:
    """How many offsets lie between two positions (`{segment: offset}`) of a topic."""
    before_start, before_end = ancestors(segments, start), ancestors(segments, end)
    count = 0
    for each in segments:
        name = each.segment
        if name in before_start and name not in start:
            continue
        if name in end:
            stop = end[name]
        elif name in before_end:
            stop = each.end_offset or 0
        else:
            continue
        count += max(0, stop - start.get(name, each.start_offset))
    return count
