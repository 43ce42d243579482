"""Which files of a segment count: the rule for readers, by names alone, and the walk to the log's end.

At each offset the file that reaches furthest counts (DESIGN.md §4). An owner's file (`<base>.parquet`) lies inside a
roll-up (`<base>-<end>.parquet`) or outside it, never across its border, so names suffice to tell which files live.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from filer.keys import FileName


@dataclass(frozen=True, slots=True)
class LiveName:
    """A file that counts from offset `start` on (its own base, unless a roll-up before it reaches into it)."""

    name: FileName
    start: int


def live_names(names: Iterable[FileName]) -> list[LiveName]:
    """The files that count, in offset order, from a segment's names alone.

    Where two roll-ups overlap without one holding the other, the later one counts from where the earlier ends.
    """
    live: list[LiveName] = []
    reached = 0
    for name in sorted(names, key=_furthest_first):
        if name.end is None:
            if name.base >= reached:
                live.append(LiveName(name, name.base))
        elif name.end > reached:
            live.append(LiveName(name, max(name.base, reached)))
            reached = name.end
    return live


def _furthest_first(name: FileName) -> tuple[int, int]:
    return name.base, -1 - (name.end or 0) if name.end is not None else 0


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the index keeps of one file. `start` is the offset from which it counts, mostly its own base."""

    name: FileName
    end: int
    size_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int
    refs: int = 0
    sealed: bool = False
    start: int = -1

    @property
    def base(self) -> int:
        """The file's own first offset."""
        return self.name.base

    @property
    def count(self) -> int:
        """How many of the file's messages count."""
        return self.end - max(self.start, self.base)


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of a segment that count, in offset order without a gap, up to `end` (or to the seal)."""

    files: tuple[FileFacts, ...]
    end: int
    sealed: bool


def walk_chain(files: Iterable[FileFacts], start: int) -> Chain:
    """Follow the files from offset `start` to the first offset without one, or to the seal.

    An owner's file counts only when it starts where the log has got to: one beyond a gap or a seal was never
    acknowledged. A roll-up stands for its messages wherever it is entered.
    """
    ordered = sorted(files, key=lambda facts: facts.base)
    chain: list[FileFacts] = []
    candidates: list[FileFacts] = []
    reached, position = start, 0
    while True:
        while position < len(ordered) and ordered[position].base <= reached:
            candidates.append(ordered[position])
            position += 1
        candidates = [facts for facts in candidates if facts.end > reached or facts.base == reached]
        fitting = [facts for facts in candidates if facts.name.rolled or facts.base == reached]
        if not fitting:
            return Chain(tuple(chain), reached, False)
        best = max(fitting, key=lambda facts: (facts.end, facts.name.rolled))
        if best.end <= reached and not best.sealed:
            return Chain(tuple(chain), reached, False)
        chain.append(_counting_from(best, reached))
        reached = best.end
        if best.sealed:
            return Chain(tuple(chain), reached, True)


def _counting_from(facts: FileFacts, start: int) -> FileFacts:
    if facts.start == start:
        return facts
    return FileFacts(
        facts.name,
        facts.end,
        facts.size_bytes,
        facts.first_timestamp_us,
        facts.last_timestamp_us,
        facts.refs,
        facts.sealed,
        start,
    )
