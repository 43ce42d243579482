"""The log of one segment on the store: finding its end, putting its next file, sealing it.

Names are offsets, and every put fails if the name exists. So the store alone decides which file comes next, and
everything here is right even if another process believes that it is the owner (docs/design.md §4, "The three outcomes
of a put").
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from filer import keys
from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectExists, ObjectNotFound, OutcomeUnknown, StoreRefused
from filer.format.digests import footer_size_bytes, stated_footer_digest
from filer.format.requests import StoredRequest
from filer.format.schema import KeyType, ValueType, log_schema
from filer.format.segment_file import FOOTER_GUESS_BYTES, FileEnd, Footer, encode, mark_json, of_file, read_end
from filer.keys import FileName
from filer.segment.live_files import FileFacts, live_names, walk_chain
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.snapshot_format import from_snapshot
from filer.stores.store import Data, MakeData, ObjectInfo, Store
from filer.stores.store_time import age_seconds, moment

FOOTER_READS_AT_ONCE = 16

Inherit = Callable[[], Awaitable[ProducerWindows]]
"""Reads the producer windows that a segment inherits from its predecessors, cut for its slots."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """The name of a segment, and the column types of its files."""

    topic: str
    segment: int
    key_type: KeyType = "binary"
    value_type: ValueType = "binary"

    def key(self, name: FileName) -> str:
        """The store key of one of its files."""
        return keys.segment_file(self.topic, self.segment, name)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows as the broker holds them."""
        return log_schema(self.key_type, self.value_type)

    def encode(self, table: pa.Table, footer: Footer) -> pa.Buffer:
        """The bytes of the owner's next file."""
        return encode(mark_json(table) if self.value_type == "json" else table, footer)


async def fetch_end(store: Store, key: str) -> FileEnd:
    """A segment file's last bytes, its whole footer among them, checked.

    Raises `ObjectNotFound`, `CorruptFile`, `OutcomeUnknown`.
    """
    end, _ = await _fetch_end(store, key)
    return end


async def _fetch_end(store: Store, key: str) -> tuple[FileEnd, ObjectInfo]:
    tail = await store.get(key, start=-FOOTER_GUESS_BYTES)
    with of_file(key):
        needed = footer_size_bytes(tail.data)
        if needed > len(tail.data):
            tail = await store.get(key, start=-needed)
        return read_end(tail.data, tail.info.size_bytes), tail.info


async def fetch_footer(store: Store, key: str) -> tuple[Footer, int]:
    """The footer of a segment file and the file's size in bytes. Raises as `fetch_end`."""
    end = await fetch_end(store, key)
    return end.footer, end.size_bytes


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file on the store: its entry for the index, the requests in it, and its link of the chain (`Footer.link`)."""

    facts: FileFacts
    requests: Sequence[StoredRequest]
    link: str


async def fetch_file(store: Store, ref: SegmentRef, name: FileName) -> FoundFile:
    """Read the footer of one file of a segment. Raises as `fetch_footer`."""
    found, info = await _fetch_end(store, ref.key(name))
    footer = found.footer
    end = footer.end if name.end is None else name.end
    if footer.base != name.base or footer.segment != ref.segment or footer.end != end:
        raise CorruptFile(
            f"{ref.key(name)}: its footer names segment {footer.segment} [{footer.base}, {footer.end})",
            key=ref.key(name),
        )
    if not footer.count and not footer.sealed:
        # Nothing could ever be stored after it: the next file would have the same name.
        raise CorruptFile(f"{ref.key(name)}: it has no messages and is no seal", key=ref.key(name))
    facts = FileFacts(
        name,
        end,
        info.size_bytes,
        footer.first_timestamp_us,
        footer.last_timestamp_us,
        footer.refs,
        footer.sealed,
        stored_us=info.modified_us,
    )
    return FoundFile(facts, footer.requests, footer.link)


async def stream_names(store: Store, ref: SegmentRef, *, from_offset: int = 0) -> AsyncIterator[FileName]:
    """The names of the segment's files that start at `from_offset` or later, in the order of the store's listing."""
    folder = keys.segment_folder(ref.topic, ref.segment)
    async for info in store.list(folder, after=f"{folder}{from_offset:020d}"):
        name = FileName.parse(info.key)
        if name is not None:
            yield name


async def list_names(store: Store, ref: SegmentRef, *, from_offset: int = 0) -> list[FileName]:
    """As `stream_names`, all at once."""
    return [name async for name in stream_names(store, ref, from_offset=from_offset)]


async def recover_index(store: Store, ref: SegmentRef, *, start_offset: int = 0) -> SegmentIndex:
    """The segment's index up to the end of its log (docs/design.md §4, "Where a log ends").

    It starts from the snapshot and reads only the files after it. The index has the producer windows of the segment's
    requests: those in the snapshot, and the requests in the footers after it. Without a snapshot the footers alone have
    them, also those of roll-ups; only requests whose files have expired may be missing. Then sequences that a known
    producer seems to have left out are refused.
    """
    try:
        snapshot, damaged = await _snapshot_index(store, ref, start_offset), False
    except CorruptFile:
        # A snapshot only saves work: the files say the same, and the next snapshot replaces this one.
        snapshot, damaged = None, True
    index = await catch_up(store, ref, snapshot or SegmentIndex(start_offset))
    index.snapshot_damaged = damaged
    if snapshot is None and start_offset:
        index.windows.refuse_gaps()
    return index


async def catch_up(store: Store, ref: SegmentRef, index: SegmentIndex) -> SegmentIndex:
    """The index with the files that came after its end; a new index if there are names beyond a gap.

    In that case a roll-up that begins before the index's end may have replaced the files after it. So all names are
    read once.
    """
    beyond = await _extend(store, ref, index)
    if beyond:
        full = SegmentIndex(index.start_offset)
        await _extend(store, ref, full, from_the_first_name=True)
        if full.end > index.end:
            full.superseded = index.superseded
            full.stored_bytes = max(full.stored_bytes, index.stored_bytes)
            if not full.sealed:
                full.inherit(index.windows)
                full.inherited = index.inherited
            index = full
    return index


async def read_snapshot(store: Store, ref: SegmentRef, start_offset: int) -> SegmentIndex | None:
    """The index from the last snapshot; None if no snapshot can be read, since a snapshot only saves work."""
    try:
        return await _snapshot_index(store, ref, start_offset)
    except CorruptFile:
        return None


async def _snapshot_index(store: Store, ref: SegmentRef, start_offset: int) -> SegmentIndex | None:
    """The index from the last snapshot; None if there is none. Raises `CorruptFile`."""
    try:
        fetched = await store.get(keys.index_snapshot(ref.topic, ref.segment))
    except ObjectNotFound:
        return None
    return from_snapshot(fetched.data, start_offset)


async def _extend(store: Store, ref: SegmentRef, index: SegmentIndex, *, from_the_first_name: bool = False) -> bool:
    """Append the files after the index's end on the store; returns whether names remain beyond a gap."""
    while not index.sealed:
        reached = index.end
        names = await list_names(store, ref, from_offset=0 if from_the_first_name else reached)
        # A file that lies within a roll-up never counts, so its footer need not be read.
        _append(index, await _fetch_all(store, ref, [live.name for live in live_names(names)]))
        if index.sealed:
            return False
        if await _exists_unlisted(store, ref, index):
            continue
        return any(name.base > index.end for name in names)
    return False


def _append(index: SegmentIndex, found: Sequence[FoundFile]) -> None:
    """Append those files that continue the index."""
    by_name = {each.facts.name: each for each in found}
    for facts in walk_chain((each.facts for each in found), index.end).files:
        index.append(facts, by_name[facts.name].requests, by_name[facts.name].link)
    if index.sealed:
        index.forget_windows()


async def _fetch_all(store: Store, ref: SegmentRef, names: list[FileName]) -> list[FoundFile]:
    gate = asyncio.Semaphore(FOOTER_READS_AT_ONCE)

    async def one(name: FileName) -> FoundFile | None:
        async with gate:
            try:
                return await fetch_file(store, ref, name)
            except ObjectNotFound:
                # Rolled up and deleted since the listing; the next listing finds the roll-up.
                return None

    found = await asyncio.gather(*(one(name) for name in names))
    return [each for each in found if each is not None]


async def _exists_unlisted(store: Store, ref: SegmentRef, index: SegmentIndex) -> bool:
    """Ask for the first missing name by itself, since a listing may lag behind; append that file if it exists."""
    try:
        _append(index, [await fetch_file(store, ref, FileName(index.end))])
    except ObjectNotFound:
        return False
    return True


async def put_until_known(
    store: Store, clock: Clock, key: str, data: Data | MakeData, writer: str, *, through_refusals: bool = False
) -> bool:
    """Put a segment file. True: this very file is stored. False: another file has the name.

    After an unknown outcome the same bytes are put again under the same name until the outcome is known. So a try that
    took effect unnoticed is recognized by the ULID in its footer, and the messages are never stored twice. Stopping
    anywhere is safe: nothing was acknowledged yet, and the next owner's recovery finds whatever was stored.

    `through_refusals`: a store that refuses (a read-only file system, credentials that have expired) is asked again as
    well, until somebody has put that right. An earlier try may have taken effect, so a refusal decides nothing either.
    """
    backoff = Backoff(clock)
    while True:
        try:
            await store.create(key, data, metadata={"braidmq-writer": writer})
            return True
        except ObjectExists:
            try:
                return (await fetch_footer(store, key))[0].writer == writer
            except CorruptFile:
                return False
            except (OutcomeUnknown, ObjectNotFound):
                pass
            except StoreRefused:
                if not through_refusals:
                    raise
        except OutcomeUnknown:
            pass
        except StoreRefused:
            if not through_refusals:
                raise
        await backoff.pause()


async def nothing_inherited() -> ProducerWindows:
    """For a segment without predecessors."""
    return ProducerWindows()


async def seal_at_end(
    store: Store,
    clock: Clock,
    ref: SegmentRef,
    *,
    start_offset: int,
    writer: str,
    grace_seconds: float,
    inherit: Inherit = nothing_inherited,
) -> SegmentIndex:
    """Seal a segment whose owner is gone, with an empty file at the end of its log; returns the sealed index.

    If another file takes the name first, this reads on and tries again at the new end. If the answer to a put comes
    later than half of `grace_seconds` after the index was read, by the clock here or by the store's, the put may have
    created a name that was superseded and deleted meanwhile. Then only a seal that a new recovery finds counts.

    It is safe to stop anywhere and to repeat: the seal is one conditional put, and every repetition finds it. The seal
    has the producer windows as of the end of the log; `inherit` reads those of the predecessors. A file that comes
    before the seal takes its name, and then the windows are computed again.
    """
    read = moment(store.time, clock)
    index = await recover_index(store, ref, start_offset=start_offset)
    while not index.sealed:
        name = FileName(index.end)
        if not index.inherited:
            index.inherit(await inherit())
        index.windows.expire(index.log_us)
        windows = b"" if index.windows.empty else index.windows.to_bytes()
        seal_writer = f"{writer}/{clock.ulid()}"
        footer = Footer(ref.segment, index.end, 0, seal_writer, 0, 0, sealed=True, windows=windows, previous=index.link)
        data = memoryview(ref.encode(ref.schema.empty_table(), footer))
        ours = await put_until_known(store, clock, ref.key(name), data, footer.writer)
        if age_seconds(store.time, clock, read) > grace_seconds / 2:
            read = moment(store.time, clock)
            index = await recover_index(store, ref, start_offset=start_offset)
        elif ours:
            facts = FileFacts(name, index.end, len(data), 0, 0, sealed=True, start=index.end)
            index.append(facts, link=stated_footer_digest(data))
        else:
            # Read only the newer files: while an owner still writes, a read of everything would always be out of date.
            index = await catch_up(store, ref, index)
    return index
