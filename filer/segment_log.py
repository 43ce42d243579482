"""The log of one segment on the store: finding its end, putting its next file, sealing it.

Names are offsets and every put fails if the name exists, so the store alone decides who wrote what comes next;
everything here holds whoever else believes to own the segment (DESIGN.md §4, "The three outcomes of a put").
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from filer import keys
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.keys import FileName
from filer.live_files import FileFacts, live_names, walk_chain
from filer.producer_windows import ProducerWindows
from filer.requests import StoredRequest
from filer.schema import KeyType, ValueType, log_schema
from filer.segment_file import FOOTER_GUESS_BYTES, Footer, encode, footer_size_bytes, mark_json, read_footer
from filer.segment_index import SegmentIndex, from_snapshot
from filer.store import Data, MakeData, Store

FOOTER_READS_AT_ONCE = 16
RETRY_FIRST_SECONDS = 0.05
RETRY_LONGEST_SECONDS = 2.0

Inherit = Callable[[], Awaitable[ProducerWindows]]
"""Reads the windows that a segment's predecessors left it, cut for its slots."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """Which segment is meant, and of which column types its files are."""

    topic: str
    segment: int
    key_type: KeyType = "binary"
    value_type: ValueType = "binary"

    def key(self, name: FileName) -> str:
        """The store key of one of its files."""
        return keys.segment_file(self.topic, self.segment, name)

    @property
    def schema(self) -> pa.Schema:
        """Columns of its rows as the broker holds them."""
        return log_schema(self.key_type, self.value_type)

    def encode(self, table: pa.Table, footer: Footer) -> pa.Buffer:
        """The owner's next file."""
        return encode(mark_json(table) if self.value_type == "json" else table, footer)


async def fetch_footer(store: Store, key: str) -> tuple[Footer, int]:
    """The footer of a segment file and the file's size in bytes.

    Raises `ObjectNotFound`, `CorruptFile`, `OutcomeUnknown`.
    """
    tail = await store.get(key, start=-FOOTER_GUESS_BYTES)
    needed = footer_size_bytes(tail.data)
    if needed > len(tail.data):
        tail = await store.get(key, start=-needed)
    return read_footer(tail.data), tail.info.size_bytes


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file on the store: what the index keeps of it, and the requests it holds."""

    facts: FileFacts
    requests: Sequence[StoredRequest]


async def fetch_file(store: Store, ref: SegmentRef, name: FileName) -> FoundFile:
    """One file of a segment, from its footer. Raises as `fetch_footer`."""
    footer, size_bytes = await fetch_footer(store, ref.key(name))
    end = footer.end if name.end is None else name.end
    if footer.base != name.base or footer.segment != ref.segment or footer.end != end:
        raise CorruptFile(
            f"{ref.key(name)}: its footer speaks of segment {footer.segment} [{footer.base}, {footer.end})"
        )
    if not footer.count and not footer.sealed:
        # Nothing could ever be stored behind it: the name of what comes next would be its own.
        raise CorruptFile(f"{ref.key(name)}: it holds no message and is no seal")
    facts = FileFacts(
        name,
        end,
        size_bytes,
        footer.first_timestamp_us,
        footer.last_timestamp_us,
        footer.refs,
        footer.sealed,
    )
    return FoundFile(facts, footer.requests)


async def stream_names(store: Store, ref: SegmentRef, *, from_offset: int = 0) -> AsyncIterator[FileName]:
    """Names of the segment's files that start at `from_offset` or later, in order, as the store lists them."""
    folder = keys.segment_folder(ref.topic, ref.segment)
    async for info in store.list(folder, after=f"{folder}{from_offset:020d}"):
        name = FileName.parse(info.key)
        if name is not None:
            yield name


async def list_names(store: Store, ref: SegmentRef, *, from_offset: int = 0) -> list[FileName]:
    """As `stream_names`, all at once."""
    return [name async for name in stream_names(store, ref, from_offset=from_offset)]


async def recover_index(store: Store, ref: SegmentRef, *, start_offset: int = 0) -> SegmentIndex:
    """The segment's index up to the end of its log (DESIGN.md §4, "Where a log ends").

    From the snapshot it reads only what came after. With it come the windows of the requests in the segment's files:
    those in the snapshot, and what the footers after it say. Without a snapshot the footers alone say it, roll-ups'
    too; only what retention has taken may be forgotten.
    """
    return await catch_up(store, ref, await load_snapshot(store, ref, start_offset) or SegmentIndex(start_offset))


async def catch_up(store: Store, ref: SegmentRef, index: SegmentIndex) -> SegmentIndex:
    """That index with what has come after its end; another one where names go on beyond a gap.

    There a roll-up that begins before the index's end may have replaced what stood behind it: all names are read
    once.
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


async def load_snapshot(store: Store, ref: SegmentRef, start_offset: int) -> SegmentIndex | None:
    """The index as last snapshotted; None where there is no (readable) snapshot: it only saves work."""
    try:
        fetched = await store.get(keys.index_snapshot(ref.topic, ref.segment))
        return from_snapshot(fetched.data, start_offset)
    except (ObjectNotFound, CorruptFile):
        return None


async def _extend(store: Store, ref: SegmentRef, index: SegmentIndex, *, from_the_first_name: bool = False) -> bool:
    """Append to the index what follows its end on the store; whether names remain beyond a gap."""
    while not index.sealed:
        reached = index.end
        names = await list_names(store, ref, from_offset=0 if from_the_first_name else reached)
        # What a roll-up holds whole never counts, so its footer need not be read.
        _append(index, await _fetch_all(store, ref, [live.name for live in live_names(names)]))
        if index.sealed:
            return False
        if await _exists_unlisted(store, ref, index):
            continue
        return any(name.base > index.end for name in names)
    return False


def _append(index: SegmentIndex, found: Sequence[FoundFile]) -> None:
    """Those that go on from the index's end."""
    requests = {each.facts.name: each.requests for each in found}
    for facts in walk_chain((each.facts for each in found), index.end).files:
        index.append(facts, requests[facts.name])
    if index.sealed:
        index.forget_windows()


async def _fetch_all(store: Store, ref: SegmentRef, names: list[FileName]) -> list[FoundFile]:
    gate = asyncio.Semaphore(FOOTER_READS_AT_ONCE)

    async def one(name: FileName) -> FoundFile | None:
        async with gate:
            try:
                return await fetch_file(store, ref, name)
            except ObjectNotFound:
                # Rolled up and deleted since the listing; what stands for it is found by the next one.
                return None

    found = await asyncio.gather(*(one(name) for name in names))
    return [each for each in found if each is not None]


async def _exists_unlisted(store: Store, ref: SegmentRef, index: SegmentIndex) -> bool:
    """Ask for the first missing name by itself: a listing may lag behind. Appends it where it is there."""
    try:
        _append(index, [await fetch_file(store, ref, FileName(index.end))])
    except ObjectNotFound:
        return False
    return True


async def put_until_known(store: Store, clock: Clock, key: str, data: Data | MakeData, writer: str) -> bool:
    """Put a segment file; True: it is this very one, False: the name is somebody else's.

    An unknown outcome is met with the same bytes under the same name until it is known, so that a try which landed
    unnoticed is found again by the ULID in its footer and never stored beside itself. Stopping anywhere in here is
    safe: nothing was acknowledged yet, and whatever landed is found by the next owner's recovery.
    """
    pause = RETRY_FIRST_SECONDS
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
        except OutcomeUnknown:
            pass
        await clock.sleep(pause)
        pause = min(pause * 2, RETRY_LONGEST_SECONDS)


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
    """Seal a segment whose owner is gone, with an empty file at the end of its log; the sealed index.

    Whoever loses the race for the name looks again and goes on from the new end. A put that was answered later
    than half of `grace_seconds` after the look may have made a name that was superseded and deleted meanwhile: only
    a seal that a new look finds counts. Safe to stop anywhere and to repeat: the seal is one conditional put, and
    once it stands every repetition finds it. It carries the windows of the log's end (`inherit` reads those that the
    predecessors left): a file that comes before it takes its name, and then the windows are made anew.
    """
    looked_seconds = clock.monotonic_seconds()
    index = await recover_index(store, ref, start_offset=start_offset)
    while not index.sealed:
        name = FileName(index.end)
        if not index.inherited:
            index.inherit(await inherit())
        index.windows.expire(index.last_timestamp_us)
        windows = b"" if index.windows.empty else index.windows.to_bytes()
        footer = Footer(ref.segment, index.end, 0, f"{writer}/{clock.ulid()}", 0, 0, sealed=True, windows=windows)
        data = memoryview(ref.encode(ref.schema.empty_table(), footer))
        ours = await put_until_known(store, clock, ref.key(name), data, footer.writer)
        now_seconds = clock.monotonic_seconds()
        if now_seconds - looked_seconds > grace_seconds / 2:
            looked_seconds = now_seconds
            index = await recover_index(store, ref, start_offset=start_offset)
        elif ours:
            index.append(FileFacts(name, index.end, len(data), 0, 0, sealed=True, start=index.end))
        else:
            # Only what came since: against an owner that writes on, a look at everything would always be late.
            index = await catch_up(store, ref, index)
    return index
