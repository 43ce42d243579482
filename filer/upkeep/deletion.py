"""Deleting files that no longer count, once their grace period is over (docs/design.md §4).

Names are taken from a listing and deleted by name. So stopping in the middle and beginning again is safe: a deleted
file is not listed, and no name that is deleted here is ever created again to be read.
"""

from collections.abc import Sequence

from filer import keys
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex, Superseded
from filer.segment.segment_log import SegmentRef, stream_names
from filer.stores.store import Store

DELETED_AT_ONCE = 1000


async def delete_superseded(store: Store, ref: SegmentRef, index: SegmentIndex, due: Sequence[Superseded]) -> int:
    """Delete the files of superseded ranges, then forget the ranges; returns the number of files.

    Call it only when a stored snapshot of the index has these ranges: a recovery from a snapshot without them would
    look for the files. Stopping in between leaves files that the snapshot still marks for deletion.
    """
    ranges = _widest(due)
    # No range should hold a file that counts. If one ever does, that file must not be deleted here.
    counting = {facts.name for facts in index.files}
    end = max(old.end for old in ranges)
    doomed: list[FileName] = []
    count = 0
    async for name in stream_names(store, ref, from_offset=ranges[0].start):
        if name.base >= end:
            break
        if any(old.holds(name) for old in ranges) and name not in counting:
            doomed.append(name)
        if len(doomed) == DELETED_AT_ONCE:
            await store.delete([ref.key(each) for each in doomed])
            count += len(doomed)
            doomed.clear()
    if doomed:
        await store.delete([ref.key(each) for each in doomed])
    index.deleted(due)
    return count + len(doomed)


def _widest(due: Sequence[Superseded]) -> list[Superseded]:
    """The ranges in order, without those that lie within another one."""
    widest: list[Superseded] = []
    for old in sorted(due, key=lambda old: (old.start, -old.end, old.rolled)):
        if not widest or old.end > widest[-1].end:
            widest.append(old)
    return widest


async def delete_segment(store: Store, topic: str, segment: int) -> int:
    """Delete everything left of a removed segment: its files, then its snapshot; returns the number of files.

    No reader has been sent here for a grace period. Stopping in between leaves a part, which the next call deletes.
    """
    doomed: list[str] = []
    count = 0
    async for info in store.list(keys.segment_folder(topic, segment)):
        doomed.append(info.key)
        if len(doomed) == DELETED_AT_ONCE:
            await store.delete(doomed)
            count += len(doomed)
            doomed = []
    await store.delete([*doomed, keys.index_snapshot(topic, segment)])
    return count + len(doomed)
