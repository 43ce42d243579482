"""The index of one segment: which files hold which offsets and times. Lives in memory, is snapshotted to the store."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filer.errors import CorruptFile
from filer.keys import FileName
from filer.live_files import Chain, FileFacts, walk_chain
from filer.producer_windows import ProducerWindows
from filer.requests import StoredRequest

_SCHEMA = pa.schema(
    [
        ("base", pa.int64()),
        ("end", pa.int64()),
        ("rolled", pa.bool_()),
        ("size_bytes", pa.int64()),
        ("first_timestamp_us", pa.int64()),
        ("last_timestamp_us", pa.int64()),
        ("refs", pa.int64()),
        ("sealed", pa.bool_()),
        ("start", pa.int64()),
        ("superseded_us", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Superseded:
    """The files within `[start, end)`, which count no more since `since_us` and are deleted a grace period later.

    Where a roll-up stands for them (`rolled`), the roll-up of exactly that range stays; else retention took them.
    A range and not a list of files: a stream of small messages makes millions of those in a grace period.
    """

    start: int
    end: int
    since_us: int
    rolled: bool

    def holds(self, name: FileName) -> bool:
        """Whether a file is one of them. No file crosses a border of a roll-up or of retention."""
        if self.rolled and name == FileName(self.start, self.end):
            return False
        return self.start <= name.base < self.end and (name.end is None or name.end <= self.end)


class SegmentIndex:
    """The live files of a segment in offset order, and the ranges of superseded ones that still await deletion.

    `size_bytes` is the sum over the live files, `stored_bytes` over all there have been, as they were stored: neither
    roll-ups nor retention change it. (Where no snapshot tells, what is left counts.) `changes` counts what the snapshot
    it came from lacks. `windows` are of the requests in its files; once it has `inherited`, those of its predecessors
    are among them.
    """

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.files: list[FileFacts] = []
        self.superseded: list[Superseded] = []
        self.size_bytes = self.stored_bytes = 0
        self.changes = 0
        self.windows = ProducerWindows()
        self.inherited = False
        self._starts: list[int] = []

    @classmethod
    def of_chain(cls, chain: Chain, start_offset: int) -> "SegmentIndex":
        """An index of exactly those files."""
        index = cls(start_offset)
        for facts in chain.files:
            index.append(facts)
        return index

    @property
    def end(self) -> int:
        """The offset after the last stored message."""
        return self.files[-1].end if self.files else self.start_offset

    @property
    def sealed(self) -> bool:
        """Whether the last file is the seal."""
        return bool(self.files) and self.files[-1].sealed

    @property
    def seal_offset(self) -> int | None:
        """The base of the seal, which is never rolled up; None while there is none."""
        return self.files[-1].base if self.sealed else None

    @property
    def last_timestamp_us(self) -> int:
        """Timestamp of the last stored message; 0 where there is none."""
        return max((facts.last_timestamp_us for facts in self.files[-2:]), default=0)

    def append(self, facts: FileFacts, requests: Sequence[StoredRequest] = ()) -> None:
        """Add the file that goes on where the index ends, with its requests; raises `CorruptFile` for any other."""
        if facts.start != self.end or self.sealed:
            raise CorruptFile(f"file {facts.name} does not go on from offset {self.end}")
        self.files.append(facts)
        self._starts.append(facts.start)
        self.size_bytes += facts.size_bytes
        self.stored_bytes += facts.size_bytes
        self.changes += 1
        for request, position in requests:
            self.windows.note(request, position, facts.last_timestamp_us)
        if requests:
            self.windows.expire(facts.last_timestamp_us)

    def inherit(self, windows: ProducerWindows) -> None:
        """Put the predecessors' windows, cut for this segment's slots, under those of its own files."""
        self.windows = ProducerWindows.combined([windows, self.windows], windows.start, windows.stop)
        self.inherited = True

    def forget_windows(self) -> None:
        """Of a sealed segment: its seal has them whole, and whoever wants them reads them there."""
        self.windows, self.inherited = ProducerWindows(), False

    def position_of(self, offset: int) -> int:
        """Place in `files` of the one that holds `offset`; of the last that starts before it where none does."""
        return max(bisect.bisect_right(self._starts, offset) - 1, 0)

    def covering(self, offset: int) -> Sequence[FileFacts]:
        """The files from the one that holds `offset` on."""
        if offset >= self.end:
            return ()
        return self.files[self.position_of(offset) :]

    def position_of_time(self, timestamp_us: int) -> int:
        """Place in `files` of the first that may hold a message of that time or later; `len(files)` for none."""
        # An empty seal has no time; it comes last, and leaving it out keeps the times in order.
        timed = len(self.files) - (1 if self.files and not self.files[-1].count else 0)
        return bisect.bisect_left(self.files, timestamp_us, hi=timed, key=lambda facts: facts.last_timestamp_us)

    def supersede(self, rolled: FileFacts, since_us: int) -> list[FileFacts]:
        """Let a roll-up stand for the files it covers; those, which now await deletion.

        Nothing happens, and the list is empty, where the index holds a file that reaches as far already, and where it
        begins in the middle of one.
        Raises `CorruptFile` where the roll-up would cut through a file.
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
            # It begins within a roll-up of somebody else's, which its range does not hold: that one could never be
            # deleted. They say the same, and the next roll-up of both holds them whole.
            return []
        self._replace(first, last, [replace(rolled, start=covered[0].start)])
        self.await_deletion(Superseded(rolled.base, rolled.end, since_us, rolled=True))
        return covered

    def trim(self, start_offset: int, since_us: int) -> list[FileFacts]:
        """Forget files wholly below `start_offset` (never the last one); those, which now await deletion."""
        keep = 0
        while keep < len(self.files) - 1 and self.files[keep].end <= start_offset:
            keep += 1
        expired = self.files[:keep]
        self._replace(0, keep, [])
        self.start_offset = max(self.start_offset, start_offset)
        if expired:
            self.await_deletion(Superseded(0, expired[-1].end, since_us, rolled=False))
        return expired

    def await_deletion(self, old: Superseded) -> None:
        """Remember files that are on the store and count no more, unless that is known already."""
        if not any(self._same(old, known) for known in self.superseded):
            self.superseded.append(old)
            self.changes += 1

    @staticmethod
    def _same(old: Superseded, known: Superseded) -> bool:
        return (old.start, old.end, old.rolled) == (known.start, known.end, known.rolled)

    def deleted(self, gone: Sequence[Superseded]) -> None:
        """Forget superseded files that are gone from the store."""
        self.superseded = [old for old in self.superseded if old not in gone]
        self.changes += 1

    def copy(self) -> "SegmentIndex":
        """The index as it is now, which no later change touches."""
        same = SegmentIndex(self.start_offset)
        same.files, same.superseded, same._starts = self.files[:], self.superseded[:], self._starts[:]
        same.size_bytes, same.stored_bytes, same.changes = self.size_bytes, self.stored_bytes, self.changes
        if not self.sealed:
            same.windows, same.inherited = self.windows.copy(), self.inherited
        return same

    def _replace(self, first: int, last: int, files: list[FileFacts]) -> None:
        self.size_bytes += sum(f.size_bytes for f in files) - sum(f.size_bytes for f in self.files[first:last])
        self.files[first:last] = files
        self._starts[first:last] = [facts.start for facts in files]
        self.changes += 1


def to_snapshot(index: SegmentIndex) -> bytes:
    """The index as an Arrow IPC stream, zstd compressed: its files, then the superseded ranges.

    The windows of its producers stand in the schema's metadata, until the segment is sealed: then in the seal.
    """
    rows = [*map(_file_row, index.files), *map(_superseded_row, index.superseded)]
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    metadata: dict[str, str | bytes] = {
        "start_offset": str(index.start_offset),
        "stored_bytes": str(index.stored_bytes),
    }
    if not index.sealed:
        metadata["windows"] = index.windows.to_bytes()
        metadata["inherited"] = str(index.inherited)
    schema = _SCHEMA.with_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def from_snapshot(data: bytes, start_offset: int) -> SegmentIndex:
    """The index from a snapshot, from `start_offset` on; raises `CorruptFile`."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        rows = table.to_pylist()
        metadata = table.schema.metadata
        taken_at, stored_bytes = int(metadata[b"start_offset"]), int(metadata[b"stored_bytes"])
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError) as error:
        raise CorruptFile(f"not an index snapshot: {error}") from error
    chain = walk_chain((_facts(row) for row in rows if row["superseded_us"] is None), taken_at)
    index = SegmentIndex.of_chain(chain, taken_at)
    index.superseded = [
        Superseded(row["base"], row["end"], row["superseded_us"], row["rolled"])
        for row in rows
        if row["superseded_us"] is not None
    ]
    index.start_offset = max(taken_at, start_offset)
    index.stored_bytes = stored_bytes
    index.changes = 0
    if b"windows" in metadata:
        index.windows = ProducerWindows.from_bytes(metadata[b"windows"])
        index.inherited = metadata[b"inherited"] == b"True"
    return index


def _file_row(facts: FileFacts) -> tuple[int | None, ...]:
    return (
        facts.base,
        facts.end,
        facts.name.rolled,
        facts.size_bytes,
        facts.first_timestamp_us,
        facts.last_timestamp_us,
        facts.refs,
        facts.sealed,
        facts.start,
        None,
    )


def _superseded_row(old: Superseded) -> tuple[int | None, ...]:
    return old.start, old.end, old.rolled, 0, 0, 0, 0, False, old.start, old.since_us


def _facts(row: dict[str, int]) -> FileFacts:
    return FileFacts(
        FileName(row["base"], row["end"] if row["rolled"] else None),
        row["end"],
        row["size_bytes"],
        row["first_timestamp_us"],
        row["last_timestamp_us"],
        row["refs"],
        bool(row["sealed"]),
        row["start"],
    )
