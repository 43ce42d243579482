"""The snapshot of a segment's index, as bytes on the store.

It ends with a digest of all bytes before it. Brokers of earlier versions wrote none, and do not see it: an Arrow stream
itself marks its end. A snapshot without a digest ends where its Arrow stream does.
"""

from collections.abc import Iterator

import pyarrow as pa
import xxhash

from filer.errors import CorruptFile
from filer.keys import FileName
from filer.segment.live_files import FileFacts, Hole, in_order, walk_chain
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex, Superseded

_MARK = b"XXH3-128"
_DIGEST_BYTES = 16
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
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
        # The version before neither writes nor reads it.
        ("stored_us", pa.int64()),
    ]
)


def to_snapshot(index: SegmentIndex) -> bytes:
    """The index as an Arrow IPC stream, zstd compressed: its files, then the superseded ranges.

    The producer windows are in the schema's metadata. Once the segment is sealed, the seal has them instead.

    A file that is lost keeps its entry: a reader of the snapshot finds out anew that it is lost, or finds it put back.
    The snapshot's files end at the first hole without a known entry. What follows is found by names, and so is what was
    put back; a broker of an older version reads the same.
    """
    rows = [*map(_file_row, _known_without_a_gap(index)), *map(_superseded_row, index.superseded)]
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    metadata: dict[str, str | bytes] = {
        "start_offset": str(index.start_offset),
        "stored_bytes": str(index.stored_bytes),
        "link": index.link if all(hole.facts is not None for hole in index.holes) else "",
    }
    if not index.sealed:
        metadata["windows"] = index.windows.to_bytes()
        metadata["inherited"] = str(index.inherited)
    schema = _SCHEMA.with_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    data = bytes(sink.getvalue())
    return data + _MARK + xxhash.xxh3_128_digest(data)


def from_snapshot(data: bytes, start_offset: int) -> SegmentIndex:
    """The index from a snapshot, from `start_offset` on. Raises `CorruptFile` if `data` is not a whole snapshot."""
    _check_digest(data)
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
    index.link = metadata.get(b"link", b"").decode()
    index.changes = 0
    if b"windows" in metadata:
        index.windows = ProducerWindows.from_bytes(metadata[b"windows"])
        index.inherited = metadata[b"inherited"] == b"True"
    return index


def _check_digest(data: bytes) -> None:
    end = len(data) - len(_MARK) - _DIGEST_BYTES
    if end > 0 and data[end : end + len(_MARK)] == _MARK:
        if xxhash.xxh3_128_digest(memoryview(data)[:end]) != data[-_DIGEST_BYTES:]:
            raise CorruptFile("an index snapshot does not fit its digest")
    elif not data.endswith(_END_OF_STREAM):
        raise CorruptFile("an index snapshot ends neither with a digest nor with its Arrow stream")


def _known_without_a_gap(index: SegmentIndex) -> Iterator[FileFacts]:
    """The entries of all files, lost ones too, up to the first hole without one."""
    for each in in_order(index.files, index.holes):
        facts = each.facts if isinstance(each, Hole) else each
        if facts is None:
            return
        yield facts


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
        facts.stored_us,
    )


def _superseded_row(old: Superseded) -> tuple[int | None, ...]:
    return old.start, old.end, old.rolled, 0, 0, 0, 0, False, old.start, old.since_us, 0


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
        row.get("stored_us") or 0,
    )
