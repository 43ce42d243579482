"""Which groups go when there are too many: those that claims have created, and that hold nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from groups.fold import GroupProgress
from groups.incarnations import Origin, origin_of
from groups.records import topic_and_group
from groups.stream.progress import StreamProgress

MOST_OF_MAKER = 2_000
"""A principal may have created so many groups of one topic at a coordinator, unless the policy says otherwise."""
GO_AT_ONCE = 64
"""So many go when room is made: finding them takes longer than ending them."""


class Maker(NamedTuple):
    """The creator of a group, and how many of a topic it may have. Without a name there is no such quota."""

    origin: Origin = Origin()
    most: int = MOST_OF_MAKER


def holds_nothing(progress: GroupProgress) -> bool:
    """Whether the group can go without harm: no message was ever handed out, and it has no member.

    Created again by the next claim, it begins with the earliest message, as it did before.
    """
    if isinstance(progress, StreamProgress):
        return not (progress.members or progress.left or any(each.epoch for each in progress.segments.values()))
    counts = (progress.dead_count, progress.expired_count, progress.skipped_count, len(progress.dying))
    return not any(counts) and all(each.horizon == each.start for each in progress.segments.values())


def count_of_makers(groups: Iterable[tuple[str, GroupProgress]]) -> "Counter[tuple[str, str]]":
    """Count the groups of each topic that each maker has created. Leaves out groups without a maker."""
    made = ((topic_and_group(key)[0], origin_of(progress.id).maker) for key, progress in groups)
    return Counter(each for each in made if each[1])


def to_go(groups: Mapping[str, GroupProgress], *, of: tuple[str, str] | None = None) -> list[str]:
    """Return the keys of groups that may go: first those of the makers with most of them, then the oldest.

    `of`: only those of that topic and maker.
    """
    found: list[tuple[tuple[str, str], str, str]] = []
    for key, progress in groups.items():
        origin = origin_of(progress.id)
        whose = (topic_and_group(key)[0], origin.maker)
        if origin.by_claim and (of is None or whose == of) and holds_nothing(progress):
            found.append((whose, progress.id, key))
    counts = Counter(whose for whose, _, _ in found)
    found.sort(key=lambda each: (-counts[each[0]], each[1]))
    return [key for _, _, key in found[:GO_AT_ONCE]]
