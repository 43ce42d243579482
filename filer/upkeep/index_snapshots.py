"""Snapshots of a segment's index, and reconciling an index with the store before one is written.

The invariant: the snapshot on the store knows every roll-up that replaced files which may be deleted. So a recovery
that starts from it and continues by names never misses a file that was deleted. It holds because a snapshot is only
ever replaced by one that knows at least as much. Either this process wrote the snapshot it replaces, and its index has
only advanced since. Or it read the ETag first, then all names, and took in every roll-up it found. A roll-up is created
before the snapshot that lets its files be deleted; hence a process that replaces that snapshot has found the roll-up.
"""

import asyncio
from concurrent.futures import Executor

from filer import keys
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectExists, ObjectNotFound, SegmentMoved
from filer.keys import FileName
from filer.segment.live_files import live_names
from filer.segment.segment_index import SegmentIndex, Superseded
from filer.segment.segment_log import SegmentRef, read_snapshot, stream_names
from filer.segment.snapshot_format import to_snapshot
from filer.stores.store import Store
from filer.upkeep.rollup import check_rollup

ADOPTED_AT_ONCE = 8
"""Each roll-up of another process is read whole before it counts: more would keep other topics waiting."""


async def snapshot_etag(store: Store, ref: SegmentRef) -> str | None:
    """The ETag of the current snapshot; None if there is none."""
    try:
        return (await store.head(keys.index_snapshot(ref.topic, ref.segment))).etag
    except ObjectNotFound:
        return None


async def write_snapshot(
    store: Store, ref: SegmentRef, index: SegmentIndex, *, etag: str | None, executor: Executor
) -> str | None:
    """Replace the snapshot of that ETag (None: there is none yet) by this index; returns the new ETag.

    Returns None if that ETag is unknown. Raises `EtagMismatch` and `ObjectExists` if another process wrote a snapshot
    meanwhile, and `OutcomeUnknown`; after any of these, `reconcile` before the next one. Stopping here is safe: a
    snapshot is replaced whole or not at all, and either one leads to the same messages.
    """
    key = keys.index_snapshot(ref.topic, ref.segment)
    data = await asyncio.get_running_loop().run_in_executor(executor, to_snapshot, index.copy())
    if etag is not None:
        return await store.replace(key, data, etag=etag)
    await store.create(key, data)
    current = await store.get(key)
    return current.info.etag if current.data == data else None


async def create_snapshot(store: Store, ref: SegmentRef, index: SegmentIndex, *, executor: Executor) -> bool:
    """Write the first snapshot of a new segment, which no other broker knows yet.

    Returns whether the store has this one now, or another of the same files. Stopping here is safe: another snapshot
    says the same, or is not taken for this one. Raises `OutcomeUnknown`.
    """
    data = await asyncio.get_running_loop().run_in_executor(executor, to_snapshot, index.copy())
    try:
        await store.create(keys.index_snapshot(ref.topic, ref.segment), data)
    except ObjectExists:
        current = await read_snapshot(store, ref, index.start_offset)
        return current is not None and current.files == index.files
    return True


async def reconcile(store: Store, ref: SegmentRef, index: SegmentIndex, *, clock: Clock, executor: Executor) -> bool:
    """Make the index complete, by one listing: add everything on the store below its end. Returns whether it is.

    False if there are more roll-ups than one call takes: call it again. A roll-up that the index lacks was written by
    another process, or by an earlier one that stopped before it recorded the roll-up. It is checked, and replaces its
    files from now on. Files that do not count await deletion from now on. Raises `SegmentMoved` if a roll-up reaches
    beyond the index (another process maintains this segment), `ObjectNotFound` if a file that counts is gone (another
    process rolled it up and deleted it: recover the index), and `CorruptFile`.
    """
    end, first_start = index.end, index.first_start
    unlisted = {facts.name for facts in index.files}
    rollups: list[FileName] = []
    async for name in stream_names(store, ref):
        if name in unlisted:
            unlisted.remove(name)
        elif name.base >= end:
            break
        elif ref.given_up.masks_name(name):
            continue  # it does not count, and is never deleted
        elif (hole := index.hole_at(name.base)) is not None:
            # Never to be deleted: it is what the hole waits for, or a roll-up that has its messages.
            if name.rolled and name != hole.name and not hole.given_up:
                rollups.append(name)
        elif (holder := _holder(index, name)) is not None:
            index.await_deletion(Superseded(holder.base, holder.end or 0, store.time.latest_us, rolled=True))
        elif name.base < first_start and (name.end or 0) <= first_start:
            index.await_deletion(Superseded(0, first_start, store.time.latest_us, rolled=False))
        elif name.rolled:
            rollups.append(name)
        else:
            # It begins within a file that counts, so it never counted. A presigned URL of a bulk load was used too
            # late.
            index.await_deletion(Superseded(name.base, name.base + 1, store.time.latest_us, rolled=False))
    for name in sorted(unlisted):
        # A listing may lag behind; a file that is really gone raises here.
        await store.head(ref.key(name))
    return await _adopt(store, ref, index, rollups, clock=clock, executor=executor)


def _holder(index: SegmentIndex, name: FileName) -> FileName | None:
    """The roll-up in the index that holds the whole of a file which is not in the index."""
    if not index.files:
        return None
    holder = index.files[index.position_of(name.base)].name
    held = holder.end is not None and holder.base <= name.base < holder.end and (name.end or 0) <= holder.end
    return holder if held else None


async def _adopt(
    store: Store, ref: SegmentRef, index: SegmentIndex, rollups: list[FileName], *, clock: Clock, executor: Executor
) -> bool:
    """Take roll-ups into the index, at most `ADOPTED_AT_ONCE`; returns whether those were all.

    A roll-up that overlaps another without holding it stays beside it. Such a pair takes two processes that roll up the
    same segment. Each message is in one or both of them, every reader chooses one, and neither is deleted before a
    later roll-up holds it whole.
    """
    found, adopted = live_names(rollups), 0
    for number, live in enumerate(found, start=1):
        if live.name.end is not None and live.name.end > index.end:
            raise SegmentMoved(
                f"{ref.key(live.name)} reaches beyond {index.end}: another broker maintains this segment"
            )
        facts = await check_rollup(store, clock, ref, live.name, executor=executor)
        try:
            adopted += bool(index.supersede(facts, store.time.latest_us))
        except CorruptFile:
            continue
        if adopted == ADOPTED_AT_ONCE:
            return number == len(found)
    return True
