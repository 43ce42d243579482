"""Stores the messages that a follower holds of a segment, if the owner cannot, and seals it (docs/design.md §5, §6)."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from filer.clock import Clock
from filer.keys import FileName
from filer.segment.cut_rows import CutRows
from filer.segment.next_file import Accepted, NextFile
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import (
    Inherit,
    SegmentRef,
    catch_up,
    check_end,
    nothing_inherited,
    pass_over_end,
    put_until_known,
    reach,
    recover_index,
    seal_at_end,
)
from filer.stores.store import Store
from filer.stores.store_time import age_seconds, moment


async def flush_and_seal(
    store: Store,
    clock: Clock,
    ref: SegmentRef,
    copy: Sequence[Accepted],
    *,
    start_offset: int,
    writer: str,
    grace_seconds: float,
    inherit: Inherit = nothing_inherited,
    known_end: int = 0,
) -> SegmentIndex:
    """Store the messages of `copy` that lie beyond the end of the log, then seal; returns the sealed index.

    It is safe to stop anywhere, to repeat it, and to run it several times at once. The messages have their offsets
    already, so every run stores the same ones, and the store takes each name once. If another file takes a name first,
    this finds the new end of the log and continues there. The seal comes last: before it, the segment has no end that
    could leave a message out. If the store lacks messages before the copy, they were stored, as the owner reported:
    they are a hole, and the copy is stored behind it. Raises `CorruptFile` as `seal_at_end`.
    """
    read = moment(store.time, clock)
    index = await recover_index(store, ref, start_offset=start_offset) if copy else SegmentIndex()
    while not index.sealed and (rest := beyond(copy, index.end)):
        if rest[0].base > index.end:
            reach(ref, index, rest[0].base)
        pass_over_end(ref, index)
        check_end(ref, index)
        file = NextFile(ref, rest, index.end, f"{writer}/{clock.ulid()}", index.link)
        ours = await put_until_known(store, clock, ref.key(FileName(index.end)), file, file.writer)
        if age_seconds(store.time, clock, read) > grace_seconds / 2:
            # The name may have been superseded and deleted before: only files that a new recovery finds count.
            read = moment(store.time, clock)
            index = await recover_index(store, ref, start_offset=start_offset)
        elif ours:
            index.append(replace(file.facts, stored_us=store.time.latest_us), file.footer.requests, file.link)
        else:
            index = await catch_up(store, ref, index)
    return await seal_at_end(
        store,
        clock,
        ref,
        start_offset=start_offset,
        writer=writer,
        grace_seconds=grace_seconds,
        inherit=inherit,
        known_end=known_end,
    )


def beyond(copy: Sequence[Accepted], end: int) -> list[Accepted]:
    """The part of a copy that lies at `end` or after it."""
    rest = [entry for entry in copy if entry.end > end]
    if rest and rest[0].base < end and isinstance(rest[0].payload, pa.RecordBatch | CutRows):
        first, payload = rest[0], rest[0].payload
        skipped = end - first.base
        left = payload.from_row(skipped) if isinstance(payload, CutRows) else payload.slice(skipped)
        rest[0] = replace(first, payload=left, base=end, count=first.count - skipped)
    return rest
