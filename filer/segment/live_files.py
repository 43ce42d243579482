"""Which files of a segment count: the rule for readers, by names alone, and the walk to the log's end.

At each offset the file that reaches furthest counts (docs/design.md §4). An owner's file (`<base>.parquet`) lies inside
a roll-up (`<base>-<end>.parquet`) or outside it, never across its border. So names suffice to know which files count.

An owner has one put in flight, and names the next file only once that one is stored. So a file beyond a missing name
shows that the file of that name was there: it is a hole in the log, never its end.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from filer.keys import FileName
from filer.topic.given_up import NOTHING_GIVEN_UP, GivenUpRanges


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
        """A time that had come when it was stored, both by the owner's clock and by the store's."""
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
class Hole:
    """The offsets `[start, end)`, which were acknowledged and cannot be read: their object is gone, or damaged.

    `name` is that object; with it put back, the offsets can be read again (or the first of them: several files may be
    gone together). `facts` is its entry in the index, if the index has known it. `etag` is that of the damaged object.
    `given_up`: no reader waits for the object any more, and readers pass the offsets by.
    """

    start: int
    end: int
    name: FileName
    damaged: bool = False
    facts: FileFacts | None = None
    etag: str | None = None
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of a segment that count, in offset order, up to `end` (or to the seal), and the holes between them.

    `blocked`: a damaged file stands at `end`, and nothing shows how far it reaches.
    """

    files: tuple[FileFacts, ...]
    end: int
    sealed: bool
    holes: tuple[Hole, ...] = ()
    blocked: FileName | None = None


def in_order(files: Iterable[FileFacts], holes: Iterable[Hole]) -> list[FileFacts | Hole]:
    """Files and holes in the order of their offsets; an empty seal comes last."""
    return sorted([*files, *holes], key=lambda each: (each.start, each.end))


def walk_chain(
    files: Iterable[FileFacts],
    start: int,
    damaged: Collection[FileName] = (),
    *,
    over_gaps: bool = False,
    given_up: GivenUpRanges = NOTHING_GIVEN_UP,
) -> Chain:
    """Follow the files from offset `start` to the first offset without one, or to the seal.

    An owner's file counts only if it starts where the previous file ends, or behind a hole. One beyond the seal was
    never acknowledged. A roll-up counts even if the previous file ends within it. With `over_gaps`, the walk goes on
    behind offsets without a readable file, up to the last file. `damaged` are names of files that cannot be read. The
    walk always passes over what is `given_up`, and files that reach into it do not count.
    """
    ordered = sorted(files, key=lambda facts: facts.base)
    if given_up:
        ordered = [facts for facts in ordered if not given_up.masks(facts.base, facts.end)]
        damaged = [name for name in damaged if not given_up.masks_name(name)]
    chain: list[FileFacts] = []
    candidates: list[FileFacts] = []
    holes: list[Hole] = []
    reached, position = start, 0
    while True:
        passed = _given_up_at(reached, given_up, ordered, damaged) if given_up else None
        if passed is not None:
            holes.append(passed)
            reached = passed.end
            continue
        while position < len(ordered) and ordered[position].base <= reached:
            candidates.append(ordered[position])
            position += 1
        candidates = [facts for facts in candidates if facts.end > reached or facts.base == reached]
        fitting = [facts for facts in candidates if facts.name.rolled or facts.base == reached]
        best = max(fitting, key=lambda facts: (facts.end, facts.name.rolled), default=None)
        if best is None or (best.end <= reached and not best.sealed):
            beyond = ordered[position].base if position < len(ordered) else None
            following = given_up.next_start(reached)
            if following is not None:
                beyond = following if beyond is None else min(beyond, following)
            hole = _hole_at(reached, beyond, damaged) if over_gaps else None
            if hole is None:
                blocked = FileName(reached) if over_gaps and FileName(reached) in damaged else None
                return Chain(tuple(chain), reached, False, tuple(holes), blocked)
            holes.append(hole)
            reached = hole.end
            continue
        chain.append(_counting_from(best, reached))
        reached = best.end
        if best.sealed:
            return Chain(tuple(chain), reached, True, tuple(holes))


def _given_up_at(
    offset: int, given_up: GivenUpRanges, ordered: Iterable[FileFacts], damaged: Collection[FileName]
) -> Hole | None:
    """The rest of what is given up at `offset`; None if nothing is, or if no name shows where it ends."""
    found = given_up.at(offset)
    if found is None:
        return None
    end = given_up.end_of(found, [*(facts.base for facts in ordered), *(name.base for name in damaged)])
    return None if end is None else Hole(offset, end, FileName(found.start), given_up=True)


def _hole_at(offset: int, beyond: int | None, damaged: Collection[FileName]) -> Hole | None:
    """The hole that begins at `offset`, if no readable file does; None if no name shows where it ends.

    `beyond` is where the next readable file begins. The next damaged one shows it as well, and so does the name of a
    damaged roll-up.
    """
    begins = [name.base for name in damaged if name.base > offset]
    end = min([*begins, *([beyond] if beyond is not None else [])], default=None)
    reaching = [(name.end, name) for name in damaged if name.end is not None and name.base <= offset < name.end]
    if reaching:
        reach, name = max(reaching)
        return Hole(offset, reach if end is None else min(reach, end), name, damaged=True)
    if end is None:
        return None
    return Hole(offset, end, FileName(offset), damaged=FileName(offset) in damaged)


def _counting_from(facts: FileFacts, start: int) -> FileFacts:
    if facts.start == start:
        return facts
    return replace(facts, start=start)
