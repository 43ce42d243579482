"""A store in a directory: an object is a file, and its key is the path below the root.

`object_folder` has the blocking calls, and says why each is safe. This module gives them threads, waits for locks
without a thread, and names the errors.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple
from urllib.parse import quote

from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import ObjectExists, ObjectNotFound, OutcomeUnknown, StoreError
from filer.stores.exact_stream import ExactStream
from filer.stores.local.durable_file import PartFile
from filer.stores.local.lone_thread import LoneThread
from filer.stores.local.object_folder import ObjectFolder
from filer.stores.local.os_errors import explain_os_error
from filer.stores.local.tidy_folder import TidyFolder
from filer.stores.object_keys import check_folder, check_prefix
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, PresignedRequest, StoreTraits
from filer.stores.store_time import StoreTime

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

LIST_PAGE = 1000
FILE_TIME_RESOLUTION_US = 20_000
"""Kernels stamp files with a clock that ticks 50 times a second or more often."""
DELETE_PAGE = 1000
# If the directory hangs, callers give up and others come. Each would leave a call behind that waits for a thread.
MOST_UNDER_WAY = 2000
STREAM_CHUNK_BYTES = 1024 * 1024
LOCK_FIRST_PAUSE_SECONDS = 0.001
LOCK_LONGEST_PAUSE_SECONDS = 0.05
# Not escaped in a URI: Spark and DuckDB understand `segment=3`, and not `segment%3D3`.
_URI_SAFE = "/=:@!$&'()*+,;~"

_TRAITS = StoreTraits(puts_are_billed=False, puts_at_once=1)


class LocalStore:
    """A directory as a store, for one machine or for many that mount it.

    The directory must support hard links. To replace objects safely, `flock` must work across all machines that use it.
    Raises `StoreRefused` if the directory cannot be created or written. `tidies_up` as in `StoreAddress`.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        threads: int = 16,
        lock_timeout_seconds: float = 10,
        tidies_up: bool = False,
    ) -> None:
        self._folder = TidyFolder(root, clock) if tidies_up else ObjectFolder(root, clock)
        self._clock = clock
        self._time = StoreTime(resolution_us=FILE_TIME_RESOLUTION_US)
        self._lock_timeout_seconds = lock_timeout_seconds
        try:
            self._folder.open()
        except OSError as error:
            raise explain_os_error(error, f"the store's directory {self._folder.root}") from error
        # Our own pool: the event loop's default one is small, and other code uses it too.
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="local-store")
        # Writes that do not overlap go to one thread, whose caches are warm. That was measured to be a sixth faster
        # than a pool, which uses its threads in turn.
        self._lone_thread: LoneThread[int] = LoneThread("local-store-lone")
        self._under_way = 0

    @property
    def traits(self) -> StoreTraits:
        """A put keeps this machine busy, so several at once slow each other down."""
        return _TRAITS

    @property
    def time(self) -> StoreTime:
        """The time of the file system: the wall clock of this machine, or of the server if the directory is mounted.

        The change times of files that calls touch show it.
        """
        return self._time

    async def tell_time(self) -> int:
        """As `Store.tell_time`: makes a temporary file and removes it."""
        told_us = await self._run("the time", self._folder.tell_time_us)
        self._time.record(told_us)
        return told_us

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`; drops the metadata."""
        if self._lone_thread.is_busy:
            self._time.record(await self._run(key, self._folder.create, key, data))
            return
        try:
            self._time.record(await self._lone_thread.submit(self._folder.create, key, data))
        except OSError as error:
            raise self._explain(error, key) from error

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`; raises `OutcomeUnknown` also if another process keeps the object's lock."""
        return await self._when_unlocked(key, partial(self._folder.try_replace, key, data, etag))

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        fetched, changed_us = await self._run(key, self._folder.get, key, start, stop)
        self._time.record(changed_us)
        return fetched

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        return await self._run(key, self._folder.head, key)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`; never lags behind. Keeps the names of one folder per level in memory."""
        check_prefix(prefix)
        objects = self._folder.walk(prefix, after=after, limit=limit)
        while page := await self._run(prefix, list, itertools.islice(objects, LIST_PAGE)):
            for info in page:
                yield info

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`; leaves out folders without an object."""
        check_folder(prefix)
        return await self._run(prefix, self._folder.list_folders, prefix)

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`."""
        remaining = iter(keys)
        while page := deque(itertools.islice(remaining, DELETE_PAGE)):
            await self._when_unlocked(page[0], partial(self._folder.try_delete, page))

    async def create_from_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, size_bytes: int, sha256: str | None
    ) -> str:
        """As `StreamingStore.create_from_stream`; keeps about 1 MiB and one chunk in memory."""
        with contextlib.suppress(ObjectNotFound):
            await self.head(key)
            raise ObjectExists(f"{key} exists already")
        stream = ExactStream(size_bytes=size_bytes, sha256=sha256)
        temp = await self._run(key, PartFile, self._folder.new_temp(), self._folder.access.file)
        try:
            async with contextlib.aclosing(_in_blocks(chunks)) as blocks:
                async for block in blocks:
                    await self._run(key, _write_block, temp, stream, block)
            return await self._run(key, self._folder.finish_stream, key, temp, stream)
        finally:
            # Also if cancelled, and then this cannot be interrupted: a thread may still be writing.
            await asyncio.shield(self._run(key, temp.discard))

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """None: a directory has no server."""
        return None

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest | None:
        """None: a directory has no server."""
        return None

    def uri(self, key: str) -> str:
        """`file:///<path>`."""
        return "file://" + quote(self._folder.path_of(key), safe=_URI_SAFE)

    async def close(self) -> None:
        """Wait for running calls, then end the threads."""
        for end in (self._pool.shutdown, self._lone_thread.close, self._folder.close):
            await asyncio.get_running_loop().run_in_executor(None, end)

    async def _run(self, key: str, call: Callable[[*Ts], R], *args: *Ts) -> R:
        if self._under_way >= MOST_UNDER_WAY:
            what = f"{key!r} below {self._folder.root}"
            raise OutcomeUnknown(f"{what}: {self._under_way} calls wait for the directory already", cause="busy")
        self._under_way += 1
        running = asyncio.get_running_loop().run_in_executor(self._pool, call, *args)
        running.add_done_callback(self._call_ended)
        try:
            # A caller that gives up leaves its call under way: a thread that hangs cannot be ended.
            return await asyncio.shield(running)
        except OSError as error:
            raise self._explain(error, key) from error

    def _call_ended(self, _: asyncio.Future[Any]) -> None:
        self._under_way -= 1

    def _explain(self, error: OSError, key: str) -> StoreError:
        return explain_os_error(error, f"{key!r} below {self._folder.root}")

    async def _when_unlocked(self, key: str, attempt: Callable[[], R | None]) -> R:
        """Repeat the attempt while it returns None, because another holds a lock. No thread waits for the lock."""
        deadline = self._clock.monotonic_seconds() + self._lock_timeout_seconds
        backoff = Backoff(
            self._clock, first_seconds=LOCK_FIRST_PAUSE_SECONDS, longest_seconds=LOCK_LONGEST_PAUSE_SECONDS
        )
        while (result := await self._run(key, attempt)) is None:
            if self._clock.monotonic_seconds() >= deadline:
                raise OutcomeUnknown(
                    f"the lock of {key} below {self._folder.root} was held by others for "
                    f"{self._lock_timeout_seconds} s; a stopped process or a dead file server may hold it"
                )
            await backoff.pause()
        return result


def _write_block(temp: PartFile, stream: ExactStream, block: bytearray) -> None:
    stream.add(block)
    temp.write(block)


async def _in_blocks(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytearray, None]:
    """The same bytes in blocks that are worth a change of threads. Each is valid until the next is asked for.

    A thread may hold a block for some time after it has written it. So all blocks are the same buffer.
    """
    block = bytearray()
    async for chunk in chunks:
        block += chunk
        if len(block) >= STREAM_CHUNK_BYTES:
            yield block
            block.clear()
    if block:
        yield block
