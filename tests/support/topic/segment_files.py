"""Segments made file by file, and three ways to read one: by index, by names only, by an older list."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from filer.errors import ObjectNotFound
from filer.format.requests import StoredRequest
from filer.format.schema import TIMESTAMP
from filer.format.segment_file import Footer, decode, encode, read_footer
from filer.keys import FileName
from filer.segment.live_files import FileFacts, LiveName, live_names
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, list_names, recover_index
from filer.segment.segment_reader import SegmentReader
from filer.stores.store import Store

START_US = 1_700_000_000_000_000


def value_of(offset: int) -> bytes:
    return b"message %d" % offset


def rows(
    ref: SegmentRef, base: int, count: int, *, step_us: int = 1000, padding: bytes = b"", uris: Sequence[str] = ()
) -> pa.Table:
    """Messages `base` to `base + count`, one each `step_us` from `START_US` on; the first ones refer to `uris`."""
    offsets = range(base, base + count)
    refs = [{"uri": uri, "size": 1, "etag": "e", "sha256": None} for uri in uris]
    values = [None] * len(uris) + [value_of(offset) + padding for offset in offsets[len(uris) :]]
    if not ref.schema.takes_all_values:
        values = [value and b'"%s"' % value for value in values]
    columns = {
        "_offset": pa.array(offsets, pa.int64()),
        "_timestamp": pa.array([START_US + offset * step_us for offset in offsets], pa.int64()).cast(TIMESTAMP),
        "key": pa.array([b"k%d" % (offset % 7) for offset in offsets], ref.schema.log.field("key").type),
        "value": pa.array(values, ref.schema.log.field("value").type),
        "event_time": pa.nulls(count, TIMESTAMP),
        "headers": pa.array([[("n", b"%d" % offset)] for offset in offsets], ref.schema.log.field("headers").type),
        "_ref": pa.array([*refs, *[None] * (count - len(refs))], ref.schema.log.field("_ref").type),
    }
    return pa.table(columns, schema=ref.schema.log)


async def append(
    store: Store,
    ref: SegmentRef,
    index: SegmentIndex,
    count: int,
    *,
    sealed: bool = False,
    step_us: int = 1000,
    padding: bytes = b"",
    uris: Sequence[str] = (),
    requests: Sequence[StoredRequest] = (),
) -> FileFacts:
    """Append the owner's next file."""
    base = index.end
    table = rows(ref, base, count, step_us=step_us, padding=padding, uris=uris)
    first_us, last_us = (START_US + base * step_us, START_US + (base + count - 1) * step_us) if count else (0, 0)
    facts = {"refs": len(uris), "sealed": sealed, "requests": tuple(requests)}
    footer = Footer(ref.segment, base, count, f"owner/{base}", first_us, last_us, **facts)
    return await _append_file(store, ref, index, table, footer)


async def append_singly(store: Store, ref: SegmentRef, index: SegmentIndex, count: int) -> None:
    """Append the owner's next files, with one message each, all at the same time."""
    base = index.end
    # Made together: that takes a fraction of the time where there are thousands.
    table = rows(ref, base, count, step_us=0)
    for row in range(count):
        footer = Footer(ref.segment, base + row, 1, f"owner/{base + row}", START_US, START_US)
        await _append_file(store, ref, index, table.slice(row, 1), footer)


async def _append_file(
    store: Store, ref: SegmentRef, index: SegmentIndex, table: pa.Table, footer: Footer
) -> FileFacts:
    """Put the file, as the next one in the chain of digests, and add it to the index."""
    name, data = FileName(footer.base), bytes(encode(ref.schema.in_file(table), replace(footer, previous=index.link)))
    await store.create(ref.key(name), data)
    times_us = (footer.first_timestamp_us, footer.last_timestamp_us)
    facts = FileFacts(name, footer.end, len(data), *times_us, footer.refs, footer.sealed, footer.base)
    index.append(facts, link=read_footer(data).link)
    return facts


async def read_by_index(store: Store, ref: SegmentRef, index: SegmentIndex) -> list[int]:
    """Offsets of all messages, as the broker reads them; checks that each value belongs to its offset."""
    found: list[int] = []
    with ThreadPoolExecutor(1) as decoder:
        reader = SegmentReader(store, decoder, cache_bytes=1 << 20)
        offset = index.start_offset
        while offset < index.end:
            table = await reader.read(ref, index, offset, max_rows=1 << 20, max_bytes=1 << 30)
            if not table.num_rows:
                break
            found += _offsets(table)
            offset = found[-1] + 1
    return found


async def list_live(store: Store, ref: SegmentRef) -> list[LiveName]:
    """The files that a reader of names only would read."""
    return live_names(await list_names(store, ref))


async def read_listed(store: Store, ref: SegmentRef, listed: Sequence[LiveName]) -> list[int]:
    """Offsets of all messages, by a list of names taken now or earlier."""
    found: list[int] = []
    for index, live in enumerate(listed):
        stop = listed[index + 1].start if index + 1 < len(listed) else None
        table = decode((await store.get(ref.key(live.name))).data)
        table = table.slice(live.start - live.name.base)
        found += _offsets(table if stop is None else table.slice(0, max(stop - live.start, 0)))
    return found


async def check_readable(store: Store, ref: SegmentRef, expected: range) -> SegmentIndex:
    """Check that a new broker and a reader of names read every message once, in order. Returns the recovered index."""
    index = await recover_index(store, ref, start_offset=expected.start)
    assert await read_by_index(store, ref, index) == list(expected)
    by_names = await read_listed(store, ref, await list_live(store, ref))
    assert by_names[-len(expected) :] == list(expected)
    assert by_names == list(range(by_names[0], expected.stop))
    return index


async def exists(store: Store, key: str) -> bool:
    try:
        await store.head(key)
    except ObjectNotFound:
        return False
    return True


def _offsets(table: pa.Table) -> list[int]:
    offsets = table["_offset"].to_pylist()
    for offset, value in zip(offsets, table["value"].to_pylist(), strict=True):
        text = value.encode() if isinstance(value, str) else value
        assert text is None or text.strip(b'"').startswith(value_of(offset)), (offset, value)
    return offsets
