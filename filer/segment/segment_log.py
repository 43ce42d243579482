"""The log of one segment on the store: finding its end, putting its next file, sealing it.

Names are offsets, and every put fails if the name exists. So the store alone decides which file comes next, and
everything here is right even if another process believes that it is the owner (docs/design.md §4, "The three outcomes
of a put").
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from filer import keys, tracing
from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectExists, ObjectNotFound, OutcomeUnknown, StoreRefused
from filer.format.digests import footer_size_bytes, stated_footer_digest
from filer.format.requests import StoredRequest
from filer.format.schema import OF_BYTES, MessageSchema
from filer.format.segment_file import FOOTER_GUESS_BYTES, FileEnd, Footer, encode, of_file, read_end
from filer.keys import FileName
from filer.segment.live_files import Chain, FileFacts, Hole, in_order, live_names, walk_chain
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.snapshot_format import from_snapshot
from filer.stores.store import Data, MakeData, ObjectInfo, Store
from filer.stores.store_time import age_seconds, moment
from filer.topic.given_up import NOTHING_GIVEN_UP, GivenUpRanges
from filer.topic.topic_schema import schema_of
from filer.topic.topic_state import Segment, TopicState

FOOTER_READS_AT_ONCE = 16
MOST_IN_A_FILE = 1_000_000_000
"""More messages than any owner's file holds. So nothing was ever stored this far behind a file of unknown length."""

Inherit = Callable[[], Awaitable[ProducerWindows]]
"""Reads the producer windows that a segment inherits from its predecessors, cut for its slots."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """The name and the schema of a segment, and its ranges that were given up when this was made."""

    topic: str
    segment: int
    schema: MessageSchema = OF_BYTES
    given_up: GivenUpRanges = NOTHING_GIVEN_UP

    @classmethod
    def of(cls, state: TopicState, segment: Segment) -> "SegmentRef":
        """Of a segment as topic.json has it."""
        return cls(state.topic, segment.id, schema_of(state), segment.given_up_ranges)

    def key(self, name: FileName) -> str:
        """The store key of one of its files."""
        return keys.segment_file(self.topic, self.segment, name)


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
    requests: those in the snapshot, and the requests in the footers after it. Without a snapshot, only the footers have
    them, those of roll-ups too; only requests whose files have expired may be missing. Then sequences that a known
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


async def recover_by_names(store: Store, ref: SegmentRef, *, start_offset: int = 0) -> SegmentIndex:
    """As `recover_index`, without the snapshot: it may be an older one, which names files that are gone since."""
    index = await catch_up(store, ref, SegmentIndex(start_offset))
    index.windows.refuse_gaps()
    return index


async def catch_up(store: Store, ref: SegmentRef, index: SegmentIndex) -> SegmentIndex:
    """The index with the files that came after its end; a new index if there are names beyond a gap.

    In that case a roll-up that begins before the index's end may have replaced the files after it. So all names are
    read once. A file that is missing then is a hole: the log goes on behind it. A request in a file that is gone is
    unknown here, so sequences that a known producer seems to have left out are refused.
    """
    if not await _extend(store, ref, index):
        return index
    full = SegmentIndex(index.start_offset)
    await _extend_over_gaps(store, ref, full)
    if full.end > index.end or full.blocked:
        full.superseded = index.superseded
        full.stored_bytes = max(full.stored_bytes, index.stored_bytes)
        if not full.sealed:
            full.inherit(index.windows)
            full.inherited = index.inherited
        index = full
    if index.holes:
        index.windows.refuse_gaps()
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
    index = from_snapshot(fetched.data, start_offset)
    # A snapshot cannot be used if one of its roll-ups has both messages that are given up and others.
    return index if index.give_up(ref.given_up) else None


async def _extend(store: Store, ref: SegmentRef, index: SegmentIndex) -> bool:
    """Append the files after the index's end on the store; returns whether names remain beyond a gap."""
    while not index.sealed:
        names = await list_names(store, ref, from_offset=index.end)
        files = _Files(store, ref)
        await files.fetch(names)
        _append(index, files.found, walk_chain(files.facts, index.end, files.damaged, given_up=ref.given_up))
        if index.sealed:
            return False
        if await _exists_unlisted(files, index):
            continue
        beyond = {name for name in names if name.base > index.end} | {*files.damaged}
        beyond = {name for name in beyond if not ref.given_up.masks_name(name)}
        if not beyond:
            index.blocked = None
        return bool(beyond) and beyond != {index.blocked}
    return False


async def _extend_over_gaps(store: Store, ref: SegmentRef, index: SegmentIndex) -> None:
    """Append all files of the segment, over the offsets whose file is gone or damaged.

    A name counts as missing only after a request for it by itself, and one more listing of all names after that: a
    listing may lag behind, and a file may be rolled up and deleted after it was listed.
    """
    files = _Files(store, ref)
    believed = -1
    while not index.sealed:
        names = await list_names(store, ref)
        await files.fetch(names)
        _append(index, files.found, walk_chain(files.facts, index.end, files.damaged, given_up=ref.given_up))
        if index.sealed or await _exists_unlisted(files, index):
            continue
        if believed == index.end:
            before = index.end
            chain = walk_chain(files.facts, before, files.damaged, over_gaps=True, given_up=ref.given_up)
            _append(index, files.found, chain)
            index.blocked = chain.blocked
            if index.end == before:
                return
        believed = index.end


def _append(index: SegmentIndex, found: Mapping[FileName, FoundFile], chain: Chain) -> None:
    """Append a chain that begins where the index ends."""
    for each in in_order(chain.files, chain.holes):
        if isinstance(each, Hole):
            index.append_hole(each)
        else:
            index.append(each, found[each.name].requests, found[each.name].link)
    if index.sealed:
        index.forget_windows()


class _Files:
    """The footers that were read of a segment's files, and the names of files that cannot be read."""

    def __init__(self, store: Store, ref: SegmentRef) -> None:
        self.found: dict[FileName, FoundFile] = {}
        self.damaged: set[FileName] = set()
        self._store, self.ref = store, ref

    @property
    def facts(self) -> list[FileFacts]:
        """The entries of the files that can be read."""
        return [each.facts for each in self.found.values()]

    async def fetch(self, names: Iterable[FileName]) -> None:
        """Read the footers of the files that count. If one is damaged, the files count that it would have replaced."""
        names = {name for name in names if not self.ref.given_up.masks_name(name)}
        while new := [live.name for live in live_names(names - self.damaged) if live.name not in self.found]:
            gone = {name for name, exists in await self._fetch_all(new) if not exists}
            names -= gone

    async def ask(self, name: FileName) -> bool:
        """Read the footer of one file by its name, listed or not; whether it is there and can be read."""
        try:
            self.found[name] = await fetch_file(self._store, self.ref, name)
        except ObjectNotFound:
            return False
        except CorruptFile:
            self.damaged.add(name)
            return False
        self.damaged.discard(name)
        return True

    async def _fetch_all(self, names: Sequence[FileName]) -> list[tuple[FileName, bool]]:
        gate = asyncio.Semaphore(FOOTER_READS_AT_ONCE)

        async def one(name: FileName) -> tuple[FileName, bool]:
            async with gate:
                # A file that is gone was rolled up and deleted since the listing: the next listing finds the roll-up.
                return name, await self.ask(name) or name in self.damaged

        return await asyncio.gather(*map(one, names))


async def _exists_unlisted(files: _Files, index: SegmentIndex) -> bool:
    """Ask for the first missing name by itself, since a listing may lag behind; append that file if it exists."""
    name = FileName(index.end)
    if files.ref.given_up.masks_name(name) or not await files.ask(name):
        return False
    _append(index, files.found, walk_chain([files.found[name].facts], index.end))
    return True


async def find_again(store: Store, ref: SegmentRef, index: SegmentIndex, hole: Hole, *, is_sound: bool = False) -> None:
    """Look whether a hole's object is back, and put its files into the index if so.

    Lists and reads only names within the hole. Does not read a damaged object again if its ETag is unchanged, unless
    its bytes were checked and it `is_sound`: on a directory, a file that was put back may have its old time and size.
    """
    if hole.etag is not None and not is_sound:
        with contextlib.suppress(ObjectNotFound):
            if (await store.head(ref.key(hole.name))).etag == hole.etag:
                return
    files = _Files(store, ref)
    names = [hole.name]
    async for name in stream_names(store, ref, from_offset=hole.start):
        if name.base >= hole.end:
            break
        names.append(name)
    await files.fetch(names)
    fitting = [facts for facts in files.facts if hole.start <= facts.base and facts.start < facts.end <= hole.end]
    if hole.facts is not None and hole.facts.name in files.found:
        # It may have counted from behind its own first offset, or be the seal.
        fitting = [facts for facts in files.facts if facts.name == hole.facts.name and facts.end == hole.end]
    if not fitting:
        return
    chain = walk_chain(fitting, hole.start, files.damaged, over_gaps=True, given_up=ref.given_up)
    rest = [] if chain.end >= hole.end else [_rest(hole, chain)]
    index.refill(hole, [facts for facts in chain.files if facts.end > facts.start], [*chain.holes, *rest])


def _rest(hole: Hole, chain: Chain) -> Hole:
    name = chain.blocked or FileName(chain.end)
    return Hole(chain.end, hole.end, name, damaged=chain.blocked is not None)


async def is_superseded(store: Store, ref: SegmentRef, index: SegmentIndex) -> bool:
    """Whether a roll-up that the index does not know holds the messages of one of its holes.

    Such a roll-up shows that its writer could read the missing object: someone had put the object back for a while, or
    only this reader found it damaged. The roll-up replaced the object, which never comes back. Raises `StoreError`.
    """
    known = {facts.name for facts in index.files}
    async for name in stream_names(store, ref):
        end = name.end
        if end is not None and name not in known and any(_holds(name.base, end, hole) for hole in index.lost):
            return True
    return False


def _holds(base: int, end: int, hole: Hole) -> bool:
    return base <= hole.start and hole.end <= end


async def has_no_other_name(store: Store, ref: SegmentRef, name: FileName) -> bool:
    """Whether the segment has that file at most, so that its name was never superseded. Raises `StoreError`."""
    folder = keys.segment_folder(ref.topic, ref.segment)
    return all([FileName.parse(info.key) == name async for info in store.list(folder, limit=2)])


async def put_until_known(
    store: Store, clock: Clock, key: str, data: Data | MakeData, writer: str, *, through_refusals: bool = False
) -> bool:
    """Put a segment file. True: this very file is stored. False: another file has the name.

    Raises `CorruptFile` if a damaged file has the name: it may be this one.

    After an unknown outcome the same bytes are put again under the same name until the outcome is known. So a try that
    took effect unnoticed is recognized by the ULID in its footer, and the messages are never stored twice. Stopping
    anywhere is safe: nothing was acknowledged yet, and the next owner's recovery finds whatever was stored.

    `through_refusals`: also ask a store again that refuses (a read-only file system, credentials that have expired),
    until an operator has put that right. An earlier try may have taken effect, so a refusal decides nothing either.
    """
    backoff = Backoff(clock)
    span, attempts = tracing.current(), 0
    while True:
        attempts += 1
        span.note(attempts=attempts)
        try:
            await store.create(key, data, metadata={"braidmq-writer": writer})
            return True
        except ObjectExists:
            try:
                return (await fetch_footer(store, key))[0].writer == writer
            except (OutcomeUnknown, ObjectNotFound):
                pass
            except StoreRefused:
                if not through_refusals:
                    raise
        except OutcomeUnknown as error:
            span.event("try failed", error)
        except StoreRefused as error:
            if not through_refusals:
                raise
            span.event("try failed", error)
        await backoff.pause()


def unreadable_end(ref: SegmentRef, index: SegmentIndex) -> CorruptFile | None:
    """The error for a reader or writer where the index ends, if a damaged file stands there."""
    if index.blocked is None:
        return None
    key = ref.key(index.blocked)
    return CorruptFile(
        f"{key} is damaged, and it is the last file of segment {ref.segment}: it is unknown where the segment ends",
        key=key,
        segment=ref.segment,
        offset=index.end,
    )


def check_end(ref: SegmentRef, index: SegmentIndex) -> None:
    """Raise `CorruptFile` if a damaged file stands where the index ends."""
    if (error := unreadable_end(ref, index)) is not None:
        raise error


def reach(ref: SegmentRef, index: SegmentIndex, end: int) -> None:
    """Extend the index to an offset that the log is known to reach: what is behind its files is a hole."""
    index.append_hole(Hole(index.end, end, index.blocked or FileName(index.end), damaged=index.blocked is not None))
    index.windows.refuse_gaps()
    index.give_up(ref.given_up)


def pass_over_end(ref: SegmentRef, index: SegmentIndex) -> None:
    """Let the index go on behind a damaged last file that is given up, so that something can be stored there.

    Nothing shows how far that file reached, so this goes on where it cannot have reached. An owner that lives knows its
    end, and its next file then shows it to all others: what is given up ends there.
    """
    if not index.sealed and ref.given_up.at(index.end) is not None:
        index.append_hole(Hole(index.end, index.end + MOST_IN_A_FILE, FileName(index.end), given_up=True))
        index.windows.refuse_gaps()


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
    known_end: int = 0,
) -> SegmentIndex:
    """Seal a segment whose owner is gone, with an empty file at the end of its log; returns the sealed index.

    The end is behind the last file: holes before it stay, and so do the names of their files. The log reaches at least
    to `known_end`, up to which it was acknowledged. Raises `CorruptFile` if the last file is damaged: nothing shows
    where the log ends then, so it stays open until that file is mended.

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
        if known_end > index.end:
            reach(ref, index, known_end)
        pass_over_end(ref, index)
        check_end(ref, index)
        name = FileName(index.end)
        if not index.inherited:
            index.inherit(await inherit())
        index.windows.expire(index.log_us)
        windows = b"" if index.windows.empty else index.windows.to_bytes()
        seal_writer = f"{writer}/{clock.ulid()}"
        footer = Footer(ref.segment, index.end, 0, seal_writer, 0, 0, sealed=True, windows=windows, previous=index.link)
        data = memoryview(encode(ref.schema.in_file(ref.schema.no_messages), footer))
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
