"""Snapshots of a segment's index, and taking in what else stands on the store before one is written.

What must hold at every moment: the snapshot on the store knows of every roll-up whose files may be deleted. Then a
recovery that starts from it and reads on by names never misses a file that went. So a snapshot is only ever
replaced by one that knows at least as much: either this process wrote the one it replaces, and its index has only
moved on since; or it read the ETag first, then all names, and took in every roll-up it found. A roll-up is created
before the snapshot that lets its files be deleted; hence whoever replaces that snapshot has seen it.
"""

import asyncio
from concurrent.futures import Executor

from filer import keys
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectExists, ObjectNotFound, SegmentMoved
from filer.keys import FileName
from filer.live_files import live_names
from filer.rollup import check_rollup
from filer.segment_index import SegmentIndex, Superseded, to_snapshot
from filer.segment_log import SegmentRef, load_snapshot, stream_names
from filer.store import Store

ADOPTED_AT_ONCE = 8
"""Every message of a roll-up that others wrote is read before it counts: more would keep other topics waiting."""


async def snapshot_etag(store: Store, ref: SegmentRef) -> str | None:
    """ETag of the snapshot that stands; None where there is none."""
    try:
        return (await store.head(keys.index_snapshot(ref.topic, ref.segment))).etag
    except ObjectNotFound:
        return None


async def write_snapshot(
    store: Store, ref: SegmentRef, index: SegmentIndex, *, etag: str | None, executor: Executor
) -> str | None:
    """Put the index in place of the snapshot of that ETag (None: where there is none); the new ETag.

    None where that ETag cannot be told. Raises `EtagMismatch` and `ObjectExists` where another process wrote one
    meanwhile, `OutcomeUnknown`; after any of these, `take_in` before the next one. Stopping here is safe: a snapshot
    is replaced whole or not at all, and either one leads to the same messages.
    """
    key = keys.index_snapshot(ref.topic, ref.segment)
    data = await asyncio.get_running_loop().run_in_executor(executor, to_snapshot, index.copy())
    if etag is not None:
        return await store.replace(key, data, etag=etag)
    await store.create(key, data)
    standing = await store.get(key)
    return standing.info.etag if standing.data == data else None


async def create_snapshot(store: Store, ref: SegmentRef, index: SegmentIndex, *, executor: Executor) -> bool:
    """Put the first snapshot of a segment that nobody knows yet; whether it, or one of the same files, stands now.

    Stopping here is safe: another one says the same, or is not taken for it. Raises `OutcomeUnknown`.
    """
    data = await asyncio.get_running_loop().run_in_executor(executor, to_snapshot, index.copy())
    try:
        await store.create(keys.index_snapshot(ref.topic, ref.segment), data)
    except ObjectExists:
        standing = await load_snapshot(store, ref, index.start_offset)
        return standing is not None and standing.files == index.files
    return True


async def take_in(store: Store, ref: SegmentRef, index: SegmentIndex, *, clock: Clock, executor: Executor) -> bool:
    """Let the index know of everything below its end that stands on the store, by one listing; whether it does now.

    False where there are more roll-ups than are reasonable at once: take in again. Those it lacks (a process stopped
    between writing one and saying so, or another process wrote it) are checked and stand for their files from now on;
    files that count no more await deletion from now on. Raises `SegmentMoved` where a roll-up reaches beyond the index
    (another process keeps this segment), `ObjectNotFound` where a file that counts is gone (another process rolled it
    up and deleted it: recover the index), `CorruptFile`.
    """
    end, first_start = index.end, index.files[0].start if index.files else 0
    unseen = {facts.name for facts in index.files}
    rollups: list[FileName] = []
    async for name in stream_names(store, ref):
        if name in unseen:
            unseen.remove(name)
        elif name.base >= end:
            break
        elif (holder := _holder(index, name)) is not None:
            index.await_deletion(Superseded(holder.base, holder.end or 0, clock.now_us(), rolled=True))
        elif name.base < first_start and (name.end or 0) <= first_start:
            index.await_deletion(Superseded(0, first_start, clock.now_us(), rolled=False))
        elif name.rolled:
            rollups.append(name)
        else:
            # It begins within a file that counts, so it never did: it came too late to a load, by a signed address.
            index.await_deletion(Superseded(name.base, name.base + 1, clock.now_us(), rolled=False))
    for name in sorted(unseen):
        # A listing may lag behind; a file that is really gone raises here.
        await store.head(ref.key(name))
    return await _adopt(store, ref, index, rollups, clock=clock, executor=executor)


def _holder(index: SegmentIndex, name: FileName) -> FileName | None:
    """The roll-up in the index that holds the whole of that file, which itself is not in the index."""
    if not index.files:
        return None
    holder = index.files[index.position_of(name.base)].name
    held = holder.end is not None and holder.base <= name.base < holder.end and (name.end or 0) <= holder.end
    return holder if held else None


async def _adopt(
    store: Store, ref: SegmentRef, index: SegmentIndex, rollups: list[FileName], *, clock: Clock, executor: Executor
) -> bool:
    """Let roll-ups stand that were found, so many at most; whether those were all.

    One that overlaps another without holding it stays beside it. Such a pair takes two processes that roll up the same
    segment. Each message is in both or in one of them, every reader chooses one, and neither is deleted before a later
    roll-up holds it whole.
    """
    found, adopted = live_names(rollups), 0
    for place, live in enumerate(found, start=1):
        if live.name.end is not None and live.name.end > index.end:
            raise SegmentMoved(f"{ref.key(live.name)} reaches beyond {index.end}: another broker keeps this segment")
        facts = await check_rollup(store, clock, ref, live.name, executor=executor)
        try:
            adopted += bool(index.supersede(facts, clock.now_us()))
        except CorruptFile:
            continue
        if adopted == ADOPTED_AT_ONCE:
            return place == len(found)
    return True
