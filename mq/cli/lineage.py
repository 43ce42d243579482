"""How segments follow one another, in words."""

from collections.abc import Iterable

from braidmq.models import Segment


def lineage(segments: Iterable[Segment]) -> list[str]:
    """A line for each change of segments into others, in the order of the first that it ended."""
    sealed: dict[tuple[int, ...], list[int]] = {}
    for segment in segments:
        if segment.successors:
            sealed.setdefault(segment.successors, []).append(segment.segment)
    return [_sentence(before, after) for after, before in sealed.items()]


def _sentence(before: list[int], after: tuple[int, ...]) -> str:
    if len(after) > 1:
        return f"{_listed(before)} split into {_listed(after)}"
    return (
        f"{_listed(before)} merged into {_listed(after)}" if len(before) > 1 else f"{before[0]} went on as {after[0]}"
    )


def _listed(ids: Iterable[int]) -> str:
    *first, last = map(str, ids)
    return f"{', '.join(first)} and {last}" if first else last
