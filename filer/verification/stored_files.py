"""Checks files on a store. Each is read once, a row group at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from functools import partial

from filer.errors import CorruptFile, ObjectNotFound
from filer.format.digests import PIECE_BYTES
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef, fetch_end
from filer.segment.segment_reader import fetch_row_group
from filer.stores.store import Store
from filer.verification.chain_check import Link
from filer.verification.file_check import FileCheck
from filer.verification.verdict import Verdict

SMALL_BYTES = 64 * 1024
"""Hashing so few bytes takes less time than handing them to a thread."""


async def verify_file(
    store: Store, ref: SegmentRef, name: FileName, *, hashing: Executor | None = None
) -> tuple[Verdict, Link | None]:
    """The condition of a segment's file, and its link of the chain if its footer is sound. Raises `OutcomeUnknown`.

    One row group is in memory at a time. With `hashing`, its threads hash large ones. A file that is rolled up and
    deleted meanwhile is reported as missing: look whether another one counts by now.
    """
    key = ref.key(name)
    link: Link | None = None
    try:
        end = await fetch_end(store, key)
        check = FileCheck(ref, name, end)
        link = Link.of(name, end.footer)
        reached = 0
        for number in range(end.metadata.num_row_groups):
            start, stop = end.row_group_range(number)
            async for piece in _pieces(store, key, reached, start):
                await hash_with(hashing, piece, check.body)
            group = await fetch_row_group(store, key, end, number)
            await hash_with(hashing, group, partial(check.row_group, number))
            reached = stop
        async for piece in _pieces(store, key, reached, end.body_bytes):
            await hash_with(hashing, piece, check.body)
        return Verdict(key, "ok" if check.finish() else "unchecked"), link
    except CorruptFile as error:
        return Verdict(key, "damaged", str(error).removeprefix(f"{key}: ")), link
    except ObjectNotFound:
        return Verdict(key, "missing", "it is not there"), None


async def hash_with(hashing: Executor | None, data: bytes, work: Callable[[bytes], None]) -> None:
    """Give the bytes to `work`: on a thread of `hashing`, if there is one and they are many."""
    if hashing is None or len(data) <= SMALL_BYTES:
        work(data)
    else:
        await asyncio.get_running_loop().run_in_executor(hashing, work, data)


async def _pieces(store: Store, key: str, start: int, stop: int) -> AsyncIterator[bytes]:
    for begin in range(start, stop, PIECE_BYTES):
        yield (await store.get(key, start=begin, stop=min(begin + PIECE_BYTES, stop))).data
