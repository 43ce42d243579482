"""The index of one segment: which files hold which offsets and times. Lives in memory, is snapshotted to the store."""

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filer.errors import CorruptFile
from filer.keys import FileName
from filer.live_files import Chain, FileFacts, walk_chain

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
    """A file that another stands for since `since_us`; it is deleted a grace period later."""

    facts: FileFacts
    since_us: int


class SegmentIndex:
    """The live files of a segment in offset order, and the superseded ones that still await deletion.

    `size_bytes` is the sum over the live files; `changes` counts what a snapshot taken earlier would lack.
    """

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.files: list[FileFacts] = []
        self.superseded: list[Superseded] = []
        self.size_bytes = 0
        self.changes = 0
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
    def last_timestamp_us(self) -> int:
        """Timestamp of the last stored message; 0 where there is none."""
        return max((facts.last_timestamp_us for facts in self.files[-2:]), default=0)

    def append(self, facts: FileFacts) -> None:
        """Add the file that goes on where the index ends; raises `CorruptFile` for any other."""
        if facts.start != self.end or self.sealed:
            raise CorruptFile(f"file {facts.name} does not go on from offset {self.end}")
        self.files.append(facts)
        self._starts.append(facts.start)
        self.size_bytes += facts.size_bytes
        self.changes += 1

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
        return bisect.bisect_left(self.files, timestamp_us, key=lambda facts: facts.last_timestamp_us)

    def supersede(self, rolled: FileFacts, since_us: int) -> list[FileFacts]:
        """Let a roll-up stand for the files it covers; those, which now await deletion.

        Nothing happens, and the list is empty, where the index holds a file that reaches further already.
        Raises `CorruptFile` where the roll-up cuts through a file.
        """
        first = self.position_of(rolled.base)
        last = first
        while last < len(self.files) and self.files[last].end <= rolled.end and not self.files[last].sealed:
            last += 1
        covered = self.files[first:last]
        if not covered or covered[-1].end != rolled.end:
            if first < len(self.files) and self.files[first].end >= rolled.end:
                return []
            raise CorruptFile(f"roll-up {rolled.name} does not end where a file ends")
        if [facts.name for facts in covered] == [rolled.name]:
            return []
        self._replace(first, last, [replace(rolled, start=max(rolled.base, covered[0].start))])
        self.superseded.extend(Superseded(facts, since_us) for facts in covered)
        return covered

    def trim(self, start_offset: int, since_us: int) -> list[FileFacts]:
        """Forget files wholly below `start_offset` (never the last one); those, which now await deletion."""
        keep = 0
        while keep < len(self.files) - 1 and self.files[keep].end <= start_offset:
            keep += 1
        expired = self.files[:keep]
        self._replace(0, keep, [])
        self.start_offset = max(self.start_offset, start_offset)
        self.superseded.extend(Superseded(facts, since_us) for facts in expired)
        return expired

    def deleted(self, names: Iterable[FileName]) -> None:
        """Forget superseded files that are gone from the store."""
        gone = set(names)
        self.superseded = [old for old in self.superseded if old.facts.name not in gone]
        self.changes += 1

    def _replace(self, first: int, last: int, files: list[FileFacts]) -> None:
        self.size_bytes += sum(f.size_bytes for f in files) - sum(
            f.size_bytes for f in self.files[first:last]
        )
        self.files[first:last] = files
        self._starts[first:last] = [facts.start for facts in files]
        self.changes += 1


def to_snapshot(index: SegmentIndex) -> bytes:
    """The index as an Arrow IPC stream, zstd compressed."""
    rows = [(facts, None) for facts in index.files] + [(old.facts, old.since_us) for old in index.superseded]
    columns = [
        [facts.base for facts, _ in rows],
        [facts.end for facts, _ in rows],
        [facts.name.rolled for facts, _ in rows],
        [facts.size_bytes for facts, _ in rows],
        [facts.first_timestamp_us for facts, _ in rows],
        [facts.last_timestamp_us for facts, _ in rows],
        [facts.refs for facts, _ in rows],
        [facts.sealed for facts, _ in rows],
        [facts.start for facts, _ in rows],
        [since_us for _, since_us in rows],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    schema = _SCHEMA.with_metadata({"start_offset": str(index.start_offset)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def from_snapshot(data: bytes, start_offset: int) -> SegmentIndex:
    """The index from a snapshot, from `start_offset` on; raises `CorruptFile`."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        rows = table.to_pylist()
        taken_at = int(table.schema.metadata[b"start_offset"])
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError) as error:
        raise CorruptFile(f"not an index snapshot: {error}") from error
    chain = walk_chain((_facts(row) for row in rows if row["superseded_us"] is None), taken_at)
    index = SegmentIndex.of_chain(chain, taken_at)
    index.superseded = [
        Superseded(_facts(row), row["superseded_us"]) for row in rows if row["superseded_us"] is not None
    ]
    index.start_offset = max(taken_at, start_offset)
    return index


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
