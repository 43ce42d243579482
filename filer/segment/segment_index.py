"""The index of one segment in memory: which files hold which offsets and times."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

from filer.errors import CorruptFile
from filer.format.requests import StoredRequest
from filer.keys import FileName
from filer.segment.live_files import Chain, FileFacts, Hole, in_order
from filer.segment.producer_windows import ProducerWindows
from filer.topic.given_up import GivenUpRange, GivenUpRanges


@dataclass(frozen=True, slots=True)
class Superseded:
    """The files within `[start, end)`, which no longer count since `since_us`; they are deleted a grace period later.

    If `rolled`, a roll-up replaced them, and the roll-up of exactly that range stays. Else they have expired. This is a
    range and not a list of files, because a stream of small messages makes millions of files in a grace period.
    """

    start: int
    end: int
    since_us: int
    rolled: bool

    def holds(self, name: FileName) -> bool:
        """Whether a file is one of them. No file crosses the border of a roll-up or of an expired range."""
        if self.rolled and name == FileName(self.start, self.end):
            return False
        return self.start <= name.base < self.end and (name.end is None or name.end <= self.end)


class SegmentIndex:
    """The live files of a segment in offset order, and the superseded ranges that still await deletion.

    `holes` are the ranges between or behind the files whose object is gone or damaged; `lost` are the holes that are
    not given up. `blocked` is a damaged file at the end: nothing shows where it ends, so nothing can be stored behind
    it, the seal included.

    `size_bytes` is the sum over the live files. `stored_bytes` is the sum over all files there have been, as they were
    stored: neither roll-ups nor retention change it. (If no snapshot has it, only the remaining files count.) `changes`
    is the number of changes since the snapshot from which the index was read. `windows` are those of the requests in
    its files; once it has `inherited`, they include those of its predecessors. `link` is what the next file names as
    `previous`: the digest of the last file's footer, empty if it is not known. `snapshot_damaged` says that the index
    was read without its snapshot, because that is damaged.
    """

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.files: list[FileFacts] = []
        self.holes: list[Hole] = []
        self.blocked: FileName | None = None
        self.superseded: list[Superseded] = []
        self.size_bytes = self.stored_bytes = 0
        self.changes = 0
        self.windows = ProducerWindows()
        self.inherited = self.snapshot_damaged = False
        self.link = ""
        self._starts: list[int] = []

    @classmethod
    def of_chain(cls, chain: Chain, start_offset: int) -> "SegmentIndex":
        """An index of exactly those files and holes."""
        index = cls(start_offset)
        for each in in_order(chain.files, chain.holes):
            if isinstance(each, Hole):
                index.append_hole(each)
            else:
                index.append(each)
        return index

    @property
    def end(self) -> int:
        """The offset after the last stored message, whether it can be read or not."""
        end = self.files[-1].end if self.files else self.start_offset
        return max(end, self.holes[-1].end) if self.holes else end

    @property
    def first_start(self) -> int:
        """The offset from which on there are files or holes; 0 if there are none."""
        starts = [each[0].start for each in (self.files, self.holes) if each]
        return min(starts, default=0)

    @property
    def lost(self) -> list[Hole]:
        """The holes that readers get an error for: their objects may be put back."""
        return [hole for hole in self.holes if not hole.given_up]

    @property
    def sealed(self) -> bool:
        """Whether the last file is the seal, or was it before it was lost."""
        return self._seal is not None

    @property
    def _seal(self) -> FileFacts | None:
        if self.files and self.files[-1].sealed:
            return self.files[-1]
        last = self.holes[-1].facts if self.holes else None
        return last if last is not None and last.sealed else None

    @property
    def seal_offset(self) -> int | None:
        """The base of the seal, which is never rolled up; None while there is none."""
        seal = self._seal
        return None if seal is None else seal.base

    @property
    def last_timestamp_us(self) -> int:
        """Timestamp of the last stored message; 0 where there is none."""
        return max((facts.last_timestamp_us for facts in self.files[-2:]), default=0)

    @property
    def log_us(self) -> int:
        """The time by which silent producers are forgotten: both the owner's clock and the store's had reached it."""
        return max((facts.log_us for facts in self.files[-2:]), default=0)

    def append(self, facts: FileFacts, requests: Sequence[StoredRequest] = (), link: str = "") -> None:
        """Add the file that begins where the index ends, with its requests and its link of the chain.

        Raises `CorruptFile` for any other file.
        """
        if facts.start != self.end or self.sealed:
            raise CorruptFile(f"file {facts.name} counts from offset {facts.start}, but the log ends at {self.end}")
        self.files.append(facts)
        self.blocked = None
        self._starts.append(facts.start)
        self.link = link
        self.size_bytes += facts.size_bytes
        self.stored_bytes += facts.size_bytes
        self.changes += 1
        for request, position in requests:
            # The later time: a producer must not seem silent because its owner's clock was behind.
            self.windows.note(request, position, facts.newest_us)
        if requests:
            self.windows.expire(facts.log_us)

    def append_hole(self, hole: Hole) -> None:
        """Go on behind a hole that begins where the index ends."""
        if hole.start != self.end or hole.end <= hole.start or self.sealed:
            raise CorruptFile(f"a hole [{hole.start}, {hole.end}) does not follow a log that ends at {self.end}")
        self.holes.append(hole)
        self.blocked, self.link = None, ""
        self.changes += 1

    def lose(self, facts: FileFacts, *, damaged: bool, etag: str | None = None) -> None:
        """Put a hole in the place of a file that is gone or damaged. Does nothing if the file no longer counts."""
        position = bisect.bisect_left(self._starts, facts.start)
        while position < len(self.files) and self.files[position] != facts and self._starts[position] == facts.start:
            position += 1
        if facts.end == facts.start or position >= len(self.files) or self.files[position] != facts:
            return
        self._replace(position, position + 1, [])
        bisect.insort(
            self.holes,
            Hole(facts.start, facts.end, facts.name, damaged, facts, etag),
            key=lambda hole: hole.start,
        )

    def learn(self, facts: FileFacts, found: FileFacts) -> None:
        """Replace what was known of a file by what was found. Does nothing if the file no longer counts."""
        if facts in self.files and (found.name, found.start, found.end) == (facts.name, facts.start, facts.end):
            position = self.files.index(facts)
            self._replace(position, position + 1, [found])

    def refill(self, hole: Hole, files: Sequence[FileFacts], holes: Sequence[Hole]) -> None:
        """Put the files that were found again in the place of a hole; `holes` are what remains of it.

        Does nothing if the index no longer has that hole. Raises `CorruptFile` if they do not fill it exactly.
        """
        if hole not in self.holes:
            return
        parts = list(in_order(files, holes))
        borders = [hole.start, *(each.end for each in parts)]
        if borders[-1] != hole.end or any(each.start != at for each, at in zip(parts, borders[:-1], strict=True)):
            raise CorruptFile(f"the files that were found do not fill the hole [{hole.start}, {hole.end})")
        at = self.holes.index(hole)
        self.holes[at : at + 1] = list(holes)
        position = bisect.bisect_left(self._starts, hole.start)
        self._replace(position, position, list(files))
        if hole.facts is None:
            self.stored_bytes += sum(facts.size_bytes for facts in files)

    def give_up(self, ranges: GivenUpRanges) -> bool:
        """Let readers pass these ranges by, and wait for nothing there; returns whether the index could be changed.

        It cannot if a file or a hole lies across the border of a range: recover the index anew. Repeating this changes
        nothing.
        """
        return all(self._give_up(each) for each in ranges.ranges)

    def _give_up(self, given_up: GivenUpRange) -> bool:
        if given_up.start >= self.end:
            return True  # what comes there later is read by the same ranges
        first = max(given_up.start, self.first_start if self.files or self.holes else self.start_offset)
        end = self._end_of_part_at(first) if given_up.end is None else given_up.end
        if first >= end or ((hole := self.hole_at(first)) is not None and hole.given_up and hole.end == end):
            return True
        files = [facts for facts in self.files if facts.start < end and first < facts.end]
        holes = [hole for hole in self.holes if hole.start < end and first < hole.end]
        parts = in_order(files, holes)
        if parts[0].start != first or parts[-1].end != end or any(facts.base < given_up.start for facts in files):
            return False
        known = files[0] if len(parts) == len(files) == 1 else None
        facts = holes[0].facts if len(parts) == len(holes) == 1 else known
        position = bisect.bisect_left(self._starts, first)
        self._replace(position, position + len(files), [])
        self.holes = [hole for hole in self.holes if hole not in holes]
        passed = Hole(first, end, FileName(given_up.start), facts=facts, given_up=True)
        bisect.insort(self.holes, passed, key=lambda hole: hole.start)
        # A roll-up that reaches into the range does not count, so what it replaced must not be deleted.
        self.superseded = [old for old in self.superseded if not given_up.overlaps(old.start, old.end)]
        self.windows.refuse_gaps()
        return True

    def _end_of_part_at(self, offset: int) -> int:
        """Where the file or the hole that holds the offset ends."""
        hole = self.hole_at(offset)
        return self.files[self.position_of(offset)].end if hole is None else hole.end

    def hole_at(self, offset: int) -> Hole | None:
        """The hole that holds `offset`, or None."""
        return next((hole for hole in self.holes if hole.start <= offset < hole.end), None)

    def inherit(self, windows: ProducerWindows) -> None:
        """Add the predecessors' windows, cut for this segment's slots, to those of its own files."""
        self.windows = ProducerWindows.combined([windows, self.windows], windows.start, windows.stop)
        self.inherited = True

    def forget_windows(self) -> None:
        """Drop the windows of a sealed segment: its seal has them complete, and can be read."""
        self.windows, self.inherited = ProducerWindows(), False

    def position_of(self, offset: int) -> int:
        """The index in `files` of the file that holds `offset`; if none does, of the last file before it."""
        return max(bisect.bisect_right(self._starts, offset) - 1, 0)

    def covering(self, offset: int) -> Sequence[FileFacts]:
        """The files from the one that holds `offset` on, or from the first one behind it if a hole holds it."""
        if offset >= self.end:
            return ()
        position = self.position_of(offset)
        while position < len(self.files) and self.files[position].end <= offset:
            position += 1
        return self.files[position:]

    def readable(self, offset: int) -> Sequence[FileFacts]:
        """The files from the one that holds `offset` on, up to what is lost next; none if that holds `offset`.

        They go on behind what is given up.
        """
        files = self.covering(offset)
        hole = next((hole for hole in self.lost if hole.end > offset), None) if files and self.holes else None
        if hole is None:
            return files
        return files[: bisect.bisect_left(files, hole.start, key=lambda facts: facts.start)]

    def position_of_time(self, timestamp_us: int) -> int:
        """The index in `files` of the first that may hold a message of that time or later; `len(files)` for none."""
        # An empty seal has no time; it comes last, and leaving it out keeps the times in order.
        timed = len(self.files) - (1 if self.files and not self.files[-1].count else 0)
        return bisect.bisect_left(self.files, timestamp_us, hi=timed, key=lambda facts: facts.last_timestamp_us)

    def supersede(self, rolled: FileFacts, since_us: int) -> list[FileFacts]:
        """Replace the files that a roll-up covers by it; returns those files, which now await deletion.

        Nothing happens, and the list is empty, if a file in the index already reaches as far, or if the roll-up begins
        in the middle of a file. Raises `CorruptFile` if the roll-up would end in the middle of a file.
        """
        first = bisect.bisect_left(self._starts, rolled.base)
        if first and self.files[first - 1].end >= rolled.end:
            return []
        last = first
        while last < len(self.files) and self.files[last].end <= rolled.end and not self.files[last].sealed:
            last += 1
        covered = self.files[first:last]
        if not covered or covered[-1].end != rolled.end:
            if first < len(self.files) and self.files[first].name.rolled and self.files[first].end >= rolled.end:
                return []
            raise CorruptFile(f"roll-up {rolled.name} does not end where a file ends")
        if covered[0].name.base < rolled.base or [facts.name for facts in covered] == [rolled.name]:
            # It begins within another process's roll-up. Its range does not hold all of that one, which then could
            # never be deleted. Both have the same messages, and the next roll-up holds both whole.
            return []
        start = covered[0].start
        if any(hole.given_up and rolled.base < hole.end and hole.start < rolled.end for hole in self.holes):
            return []  # it was made before: it has messages that are given up, so it does not count
        if any(rolled.base <= hole.start < rolled.end for hole in self.holes):
            # It holds the messages of files that are lost: they can be read again.
            start = max(rolled.base, self.files[first - 1].end if first else self.start_offset)
            self.holes = [hole for hole in self.holes if not rolled.base <= hole.start < rolled.end]
        stored_us = max(facts.stored_us for facts in covered)
        self._replace(first, last, [replace(rolled, start=start, stored_us=stored_us)])
        self.await_deletion(Superseded(rolled.base, rolled.end, since_us, rolled=True))
        return covered

    def trim(self, start_offset: int, since_us: int) -> list[FileFacts]:
        """Forget the files below `start_offset`, but never the last one; returns them: they now await deletion."""
        keep = 0
        while keep < len(self.files) - 1 and self.files[keep].end <= start_offset:
            keep += 1
        expired = self.files[:keep]
        self._replace(0, keep, [])
        self.start_offset = max(self.start_offset, start_offset)
        self.holes = [hole for hole in self.holes if hole.end > start_offset]
        if expired:
            self.await_deletion(Superseded(0, expired[-1].end, since_us, rolled=False))
        return expired

    def await_deletion(self, old: Superseded) -> None:
        """Remember files that are on the store and no longer count, unless that is known already."""
        if not any(self._same(old, known) for known in self.superseded):
            self.superseded.append(old)
            self.changes += 1

    @staticmethod
    def _same(old: Superseded, known: Superseded) -> bool:
        return (old.start, old.end, old.rolled) == (known.start, known.end, known.rolled)

    def deleted(self, ranges: Sequence[Superseded]) -> None:
        """Forget superseded files that were deleted from the store."""
        self.superseded = [old for old in self.superseded if old not in ranges]
        self.changes += 1

    def copy(self) -> "SegmentIndex":
        """An independent copy; of a sealed segment without the windows, which its seal has."""
        same = SegmentIndex(self.start_offset)
        same.files, same.superseded, same._starts = self.files[:], self.superseded[:], self._starts[:]
        same.holes, same.blocked = self.holes[:], self.blocked
        same.size_bytes, same.stored_bytes, same.changes = self.size_bytes, self.stored_bytes, self.changes
        same.link = self.link
        if not self.sealed:
            same.windows, same.inherited = self.windows.copy(), self.inherited
        return same

    def _replace(self, first: int, last: int, files: list[FileFacts]) -> None:
        self.size_bytes += sum(f.size_bytes for f in files) - sum(f.size_bytes for f in self.files[first:last])
        self.files[first:last] = files
        self._starts[first:last] = [facts.start for facts in files]
        self.changes += 1
