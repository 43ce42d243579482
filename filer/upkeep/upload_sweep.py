"""Deleting uploads to which no stored message refers, or no longer does.

`Uploads.verify` accepts a reference only within a day of the upload's issue. So if an upload is older than a day and a
grace period, and no segment file on the store refers to it, no message will ever refer to it again. Files that await
deletion count too: a reader with an older list of files may still read them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from concurrent.futures import Executor
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from ulid import ULID

from filer import keys
from filer.errors import DataMissing
from filer.format.segment_file import FileEnd, decode_columns, of_file
from filer.keys import FileName
from filer.segment.live_files import live_names
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import fetch_end
from filer.segment.segment_reader import fetch_row_group
from filer.stores.store import Store

DELETED_AT_ONCE = 1000
REMEMBERED_REFS = 1_000_000
_URI = "_ref.uri"
_FOLDER = "segment="

Digests = npt.NDArray[np.uint64]


class RefMemory:
    """The uploads to which the files used last refer: a hash of eight bytes each, up to `limit` of them.

    If two uploads have the same hash, one of them stays as long as messages refer to the other.
    """

    def __init__(self, *, limit: int = REMEMBERED_REFS) -> None:
        self._limit, self._held = limit, 0
        self._files: OrderedDict[str, Digests] = OrderedDict()

    def get(self, key: str) -> Digests | None:
        """The hashes of the uploads to which a file refers; None if they are not cached."""
        found = self._files.get(key)
        if found is not None:
            self._files.move_to_end(key)
        return found

    def put(self, key: str, digests: Digests) -> None:
        """Cache them, and drop those of the files used longest ago if there is no room."""
        self._files[key] = digests
        self._held += 1 + len(digests)
        while self._held > self._limit:
            _, dropped = self._files.popitem(last=False)
            self._held -= 1 + len(dropped)


async def expired_uploads(store: Store, topic: str, before_us: int) -> AsyncGenerator[str]:
    """Keys of the uploads that were issued before that time, oldest first: their ids begin with the time of issue."""
    folder = keys.uploads_folder(topic)
    async for info in store.list(folder):
        issued_us = _issued_us(info.key.removeprefix(folder))
        if issued_us is not None and issued_us >= before_us:
            return
        if issued_us is not None:
            yield info.key


def _issued_us(upload_id: str) -> int | None:
    try:
        return int(ULID.from_str(upload_id[:26]).milliseconds) * 1000
    except ValueError:
        return None


async def sweep_uploads(
    store: Store,
    topic: str,
    indexes: Mapping[int, SegmentIndex],
    memory: RefMemory,
    *,
    before_us: int,
    executor: Executor,
    bare: Collection[int] = (),
) -> int:
    """Delete the uploads issued before that time to which no segment file of the topic refers; returns their number.

    `before_us` must be more than a day and a grace period ago, and every publish accepted before it must have been
    stored or have failed by now. With `indexes`, files that are known to have no references are not read. Files of
    `bare` segments have no references and are not opened, since they may be unchecked.

    Stopping anywhere is safe: no message will ever refer to a deleted upload, and the next sweep deletes the rest.
    Raises `ObjectNotFound` if a file is deleted while it is read (then nothing more is deleted), and `CorruptFile`.
    Raises `DataMissing` if a file is known to be lost: its messages may refer to uploads, and it may be put back.
    """
    _check_whole(topic, indexes)
    referenced = await _referenced(store, topic, indexes, memory, executor=executor, bare=bare)
    doomed: list[str] = []
    count = 0
    async for key in expired_uploads(store, topic, before_us):
        if not _among(key.removeprefix(keys.topic_folder(topic)), referenced):
            doomed.append(key)
        if len(doomed) == DELETED_AT_ONCE:
            await store.delete(doomed)
            count += len(doomed)
            doomed = []
    if doomed:
        await store.delete(doomed)
    return count + len(doomed)


def _check_whole(topic: str, indexes: Mapping[int, SegmentIndex]) -> None:
    for segment, index in indexes.items():
        for hole in index.lost:
            key = keys.segment_file(topic, segment, hole.name)
            raise DataMissing(f"{key} cannot be read, so it is unknown which uploads are referred to", key=key)


def _is_given_up(index: SegmentIndex | None, name: FileName) -> bool:
    """Whether the file no longer counts: the uploads that its messages refer to are given up with them."""
    hole = None if index is None else index.hole_at(name.base)
    return hole is not None and hole.given_up


async def _referenced(
    store: Store,
    topic: str,
    indexes: Mapping[int, SegmentIndex],
    memory: RefMemory,
    *,
    executor: Executor,
    bare: Collection[int],
) -> Digests:
    """Sorted hashes of the uploads to which any file on the store refers, of open, sealed and removed segments."""
    found: list[Digests] = [np.empty(0, np.uint64)]
    for folder in await store.list_folders(keys.segments_folder(topic)):
        segment = folder.removeprefix(_FOLDER)
        if not segment.isdecimal() or int(segment) in bare:
            continue
        index = indexes.get(int(segment))
        without = {facts.name for facts in index.files if not facts.refs} if index is not None else set()
        prefix = keys.segment_folder(topic, int(segment))
        names = [FileName.parse(info.key) async for info in store.list(prefix)]
        # A roll-up has all references of the files that it replaces.
        for live in live_names(name for name in names if name is not None and not _is_given_up(index, name)):
            if live.name not in without:
                key = keys.segment_file(topic, int(segment), live.name)
                found.append(await _refs_of(store, key, memory, executor=executor))
    return np.unique(np.concatenate(found))


async def _refs_of(store: Store, key: str, memory: RefMemory, *, executor: Executor) -> Digests:
    digests = memory.get(key)
    if digests is None:
        digests = await _read_refs(store, key, executor=executor)
        memory.put(key, digests)
    return digests


async def _read_refs(store: Store, key: str, *, executor: Executor) -> Digests:
    """Read the footer and, if it counts references, the row groups: only whole ones can be checked by their digests."""
    file = await fetch_end(store, key)
    found: list[Digests] = [np.empty(0, np.uint64)]
    if not file.footer.refs:
        return found[0]
    for group in range(file.metadata.num_row_groups):
        data = await fetch_row_group(store, key, file, group)
        found.append(await asyncio.get_running_loop().run_in_executor(executor, _digests, key, file, group, data))
    return np.unique(np.concatenate(found))


def _digests(key: str, file: FileEnd, group: int, data: bytes) -> Digests:
    """Runs on an executor thread."""
    with of_file(key):
        refs = decode_columns(file, group, data, [_URI])["_ref"]
    uris = refs.combine_chunks().field("uri").drop_null().to_pylist()
    return np.unique(np.fromiter(map(_digest, _strings(uris)), np.uint64))


def _strings(uris: Iterable[str | None]) -> Iterable[str]:
    return (uri for uri in uris if uri is not None)


def _digest(uri: str) -> int:
    return int.from_bytes(blake2b(uri.encode(), digest_size=8).digest(), "big")


def _among(uri: str, referenced: Digests) -> bool:
    digest = np.uint64(_digest(uri))
    index = int(np.searchsorted(referenced, digest))
    return index < len(referenced) and bool(referenced[index] == digest)
