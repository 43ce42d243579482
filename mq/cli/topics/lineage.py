"""Describe in sentences how segments follow one another."""

from collections.abc import Iterable

from braidmq.models import Segment


def lineage(segments: Iterable[Segment]) -> list[str]:
    """A line for each split, merge or replacement, in the order of the first segment that it sealed."""
    sealed: dict[tuple[int, ...], list[int]] = {}
    for segment in segments:
        if segment.successors:
            sealed.setdefault(segment.successors, []).append(segment.segment)
    return [_sentence(before, after) for after, before in sealed.items()]


def _sentence(before: list[int], after: tuple[int, ...]) -> str:
    if len(after) > 1:
        return f"{_listed(before)} split into {_listed(after)}"
    return (
        f"{_listed(before)} merged into {_listed(after)}"
        if len(before) > 1
        else f"{before[0]} was replaced by {after[0]}"
    )


def _listed(ids: Iterable[int]) -> str:
    *first, last = map(str, ids)
    return f"{', '.join(first)} and {last}" if first else last
