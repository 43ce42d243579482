"""Which files of a segment count: the rule for readers, by names alone, and the walk to the log's end.

At each offset the file that reaches furthest counts (docs/design.md §4). An owner's file (`<base>.parquet`) lies inside
a roll-up (`<base>-<end>.parquet`) or outside it, never across its border. So names suffice to tell which files count.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from filer.keys import FileName


@dataclass(frozen=True, slots=True)
class LiveName:
    """A file that counts, from offset `start` on: its own base, unless a roll-up before it reaches into it."""

    name: FileName
    start: int


def live_names(names: Iterable[FileName]) -> list[LiveName]:
    """The files that count, in offset order, from the names of a segment's files alone.

    If two roll-ups overlap and neither holds the other, the one that reaches further counts from the other one's end.
    """
    by_base = sorted(names, key=lambda name: name.base)
    rollups = [name for name in by_base if name.end is not None]
    owners = [name for name in by_base if name.end is None]
    live: list[LiveName] = []
    reached = begun = passed = 0
    furthest: FileName | None = None
    while True:
        while begun < len(rollups) and rollups[begun].base <= reached:
            furthest = max(furthest or rollups[begun], rollups[begun], key=_end)
            begun += 1
        if furthest is not None and _end(furthest) > reached:
            live.append(LiveName(furthest, max(furthest.base, reached)))
            reached = _end(furthest)
            continue
        while passed < len(owners) and owners[passed].base < reached:
            passed += 1
        if begun < len(rollups) and (passed == len(owners) or rollups[begun].base <= owners[passed].base):
            reached = rollups[begun].base
        elif passed < len(owners):
            live.append(LiveName(owners[passed], owners[passed].base))
            # Its name does not contain its end, but no other file begins within it.
            reached = owners[passed].base + 1
        else:
            return live


def _end(name: FileName) -> int:
    return name.base if name.end is None else name.end


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The entry of one file in the index. `start` is the offset from which it counts, mostly its own base.

    `stored_us` is the store's time when its messages were stored, or later; 0 where an earlier version did not note it.
    The timestamps are by the clock of the owner, which may have been wrong.
    """

    name: FileName
    end: int
    size_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int
    refs: int = 0
    sealed: bool = False
    start: int = -1
    # Two processes learn it in different ways, and mean the same file.
    stored_us: int = field(default=0, compare=False)

    @property
    def newest_us(self) -> int:
        """The time before which its messages were accepted, by the owner's clock and by the store's."""
        return max(self.last_timestamp_us, self.stored_us)

    @property
    def log_us(self) -> int:
        """A time that had come when it was stored, by the owner's clock and by the store's."""
        return min(self.last_timestamp_us, self.stored_us) if self.stored_us else self.last_timestamp_us

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

    An owner's file counts only if it starts where the previous file ends: one beyond a gap or a seal was never
    acknowledged. A roll-up counts even if the previous file ends within it.
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
    return replace(facts, start=start)
