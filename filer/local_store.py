"""A store in a directory: an object is a file, its key the path below the root.

A file appears under its name whole and durable or not at all: it is written and synced under `.tmp/` first
and then linked, which fails where the name is taken, by any process on any machine that shares the directory.
A process killed at any line leaves a file in `.tmp/` at most; those are swept when they are an hour old.
"""

# Plain os calls: a Path per call costs more than the system calls do, and this is the path of every write.
# ruff: noqa: PTH100, PTH103, PTH104, PTH108, PTH112, PTH116, PTH120

import asyncio
import contextlib
import fcntl
import itertools
import os
import stat
import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple
from urllib.parse import quote

from filer.byte_range import resolve_range
from filer.clock import Clock
from filer.durable_file import PartFile, remove_quietly, sync_folder, write_durable, write_durable_later
from filer.errors import EtagMismatch, ObjectExists, ObjectNotFound, OutcomeUnknown, StoreError, StoreRefused
from filer.exact_stream import ExactStream
from filer.folder_walk import holds_object, walk_folder
from filer.object_keys import check_folder, check_key, check_prefix
from filer.os_errors import explain_os_error
from filer.store import Data, Fetched, MakeData, ObjectInfo, PresignedRequest

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

TEMP_FOLDER = ".tmp"
LOCK_FOLDER = ".locks"
LOCK_STRIPES = 256
TEMP_LIFETIME_SECONDS = 3600
LIST_PAGE = 1000
DELETE_PAGE = 1000
STREAM_CHUNK_BYTES = 1024 * 1024
LINK_TRIES = 3
SETTLED_FOLDERS = 10_000
LOCK_FIRST_PAUSE_SECONDS = 0.001
LOCK_LONGEST_PAUSE_SECONDS = 0.05
# What a URI may show as it is: Spark and DuckDB take `segment=3`, not `segment%3D3`.
_URI_SAFE = "/=:@!$&'()*+,;~"


class LocalStore:
    """A directory as a store, for one machine or for many that mount it.

    The directory must support hard links; replacing objects needs `flock` that reaches all its users. Raises
    `StoreRefused` where the directory cannot be made or written.
    """

    def __init__(self, root: Path, *, clock: Clock, threads: int = 16, lock_timeout_seconds: float = 10) -> None:
        self._root = os.path.abspath(root)
        self._clock = clock
        self._lock_timeout_seconds = lock_timeout_seconds
        self._temp_prefix = f"{self._root}/{TEMP_FOLDER}/{clock.ulid()}-"
        self._temp_numbers = itertools.count()
        # Folders whose own names are known to be durable: nothing in them is lost with the power.
        self._settled: set[str] = set()
        try:
            self._open_root()
        except OSError as error:
            raise explain_os_error(error, f"the store's directory {self._root}") from error
        # A pool of its own: the event loop's default one is small and shared with whoever else uses threads.
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="local-store")
        # One write after another goes to one thread, whose caches are warm: measured a sixth faster than a pool,
        # which takes its threads in turn.
        self._lone_pool = ThreadPoolExecutor(1, thread_name_prefix="local-store-lone")
        self._lone_busy = False

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`; the metadata is dropped."""
        if self._lone_busy:
            await self._run(key, self._create, key, data)
            return
        self._lone_busy = True
        writing = self._lone_pool.submit(self._create, key, data)
        # When the thread is done, which a cancelled caller does not wait for.
        writing.add_done_callback(self._free_lone_thread)
        try:
            await asyncio.wrap_future(writing)
        except OSError as error:
            raise self._explain(error, key) from error

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`; `OutcomeUnknown` also where another process keeps the object's lock."""
        return await self._when_unlocked(key, partial(self._try_replace, key, data, etag))

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        return await self._run(key, self._get, key, start, stop)

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        return await self._run(key, self._head, key)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`; never lags behind. Holds the names of one folder per level in memory."""
        check_prefix(prefix)
        walk = itertools.islice(walk_folder(self._root, prefix, after=after or ""), limit)
        while page := await self._run(prefix, _take_page, walk):
            for info in page:
                yield info

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`; folders that hold no object are left out."""
        check_folder(prefix)
        return await self._run(prefix, self._list_folders, prefix)

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`."""
        remaining = iter(keys)
        while page := deque(itertools.islice(remaining, DELETE_PAGE)):
            await self._when_unlocked(page[0], partial(self._try_delete, page))

    async def create_from_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, size_bytes: int, sha256: str | None
    ) -> str:
        """As `StreamingStore.create_from_stream`; holds about 1 MiB and one chunk in memory."""
        with contextlib.suppress(ObjectNotFound):
            await self.head(key)
            raise ObjectExists(f"{key} exists already")
        stream = ExactStream(size_bytes=size_bytes, sha256=sha256)
        temp = await self._run(key, PartFile, self._new_temp())
        try:
            async with contextlib.aclosing(_in_blocks(chunks)) as blocks:
                async for block in blocks:
                    await self._run(key, _write_block, temp, stream, block)
            return await self._run(key, self._finish_stream, key, temp, stream)
        finally:
            # Also when cancelled, and then to its end: a thread may still be writing.
            await asyncio.shield(self._run(key, temp.discard))

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """None: a directory answers no requests."""
        return None

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest | None:
        """None: a directory answers no requests."""
        return None

    def uri(self, key: str) -> str:
        """`file:///<path>`."""
        return "file://" + quote(self._path(key), safe=_URI_SAFE)

    async def close(self) -> None:
        """Wait for what is under way and end the threads."""
        for pool in (self._pool, self._lone_pool):
            await asyncio.get_running_loop().run_in_executor(None, pool.shutdown)

    async def _run(self, key: str, call: Callable[[*Ts], R], *args: *Ts) -> R:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)
        except OSError as error:
            raise self._explain(error, key) from error

    def _explain(self, error: OSError, key: str) -> StoreError:
        return explain_os_error(error, f"{key!r} below {self._root}")

    def _free_lone_thread(self, _: Future[None]) -> None:
        self._lone_busy = False

    async def _when_unlocked(self, key: str, attempt: Callable[[], R | None]) -> R:
        """What the attempt gives; None means that somebody held a lock: no thread is kept waiting for it."""
        deadline = self._clock.monotonic_seconds() + self._lock_timeout_seconds
        pause = LOCK_FIRST_PAUSE_SECONDS
        while (result := await self._run(key, attempt)) is None:
            if self._clock.monotonic_seconds() >= deadline:
                raise OutcomeUnknown(
                    f"the lock of {key} below {self._root} was held by others for "
                    f"{self._lock_timeout_seconds} s; a stopped process or a dead file server may hold it"
                )
            await self._clock.sleep(pause)
            pause = min(pause * 2, LOCK_LONGEST_PAUSE_SECONDS)
        return result

    # What follows runs in the threads of the pool.

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _new_temp(self) -> str:
        return f"{self._temp_prefix}{next(self._temp_numbers)}"

    def _open_root(self) -> None:
        missing = [self._root]
        while not os.path.isdir(missing[-1]):
            missing.append(os.path.dirname(missing[-1]))
        for name in (TEMP_FOLDER, LOCK_FOLDER):
            os.makedirs(f"{self._root}/{name}", exist_ok=True)
        for folder in missing[1:]:
            sync_folder(folder)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what processes that were killed left behind."""
        too_old_ns = (self._clock.now_us() - TEMP_LIFETIME_SECONDS * 1_000_000) * 1000
        with os.scandir(f"{self._root}/{TEMP_FOLDER}") as entries:
            for entry in entries:
                # Other processes sweep at the same time.
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime_ns < too_old_ns:
                        os.unlink(entry.path)

    def _create(self, key: str, data: Data | MakeData) -> None:
        final = self._path(key)
        temp = self._new_temp()
        try:
            write_durable(temp, data() if callable(data) else data)
            self._link(temp, final)
        finally:
            remove_quietly(temp)
        self._settle(os.path.dirname(final))

    def _link(self, temp: str, final: str) -> None:
        for _ in range(LINK_TRIES):
            try:
                return os.link(temp, final)
            except FileExistsError:
                if os.path.isdir(final):
                    raise StoreRefused(f"{final} is a folder: other objects lie below that key") from None
                # An earlier try of this very call may have made it and not got to syncing its folder.
                self._settle(os.path.dirname(final))
                raise ObjectExists(f"{final} exists already") from None
            except FileNotFoundError:
                os.makedirs(os.path.dirname(final), exist_ok=True)
        raise OutcomeUnknown(f"{final} was not written: {temp} has been removed meanwhile")

    def _settle(self, folder: str) -> None:
        """Make the names in the folder durable, and those of the folders above it if they may not be yet."""
        sync_folder(folder)
        if folder in self._settled:
            return
        above = folder
        while above != self._root:
            above = os.path.dirname(above)
            sync_folder(above)
        if len(self._settled) >= SETTLED_FOLDERS:
            self._settled.clear()
        self._settled.add(folder)

    def _finish_stream(self, key: str, temp: PartFile, stream: ExactStream) -> str:
        digest = stream.finish()
        final = self._path(key)
        temp.sync()
        self._link(temp.path, final)
        self._settle(os.path.dirname(final))
        return digest

    def _try_replace(self, key: str, data: Data, etag: str) -> str | None:
        """The new ETag; None where somebody else holds the lock."""
        final = self._path(key)
        with self._try_lock(key) as held:
            if not held:
                return None
            try:
                before = os.stat(final)
            except (FileNotFoundError, NotADirectoryError):
                raise EtagMismatch(f"{key} is gone") from None
            if _etag(before) != etag:
                raise EtagMismatch(f"{key} has changed since it was read")
            temp = self._new_temp()
            try:
                after = write_durable_later(temp, data, than_ns=before.st_mtime_ns)
                os.rename(temp, final)
            finally:
                remove_quietly(temp)
            self._settle(os.path.dirname(final))
            return _etag(after)

    def _get(self, key: str, start: int, stop: int | None) -> Fetched:
        fd = _open_object(key, self._path(key))
        try:
            info = _info(key, os.fstat(fd))
            first, last = resolve_range(start, stop, info.size_bytes)
            parts = []
            while first < last and (part := os.pread(fd, last - first, first)):
                parts.append(part)
                first += len(part)
            return Fetched(parts[0] if len(parts) == 1 else b"".join(parts), info)
        finally:
            os.close(fd)

    def _head(self, key: str) -> ObjectInfo:
        try:
            status = os.stat(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            raise _not_found(key) from None
        if not stat.S_ISREG(status.st_mode):
            raise _not_found(key)
        return _info(key, status)

    def _list_folders(self, prefix: str) -> Sequence[str]:
        try:
            with os.scandir(f"{self._root}/{prefix}") as entries:
                found = [entry for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(entry.name for entry in found if holds_object(entry.path))

    def _try_delete(self, keys: deque[str]) -> bool | None:
        """Remove them and take them out of `keys`; None where some remain that somebody else holds locked."""
        folders = set()
        for _ in range(len(keys)):
            key = keys.popleft()
            path = self._path(key)
            with self._try_lock(key) as held, contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if not held:
                    keys.append(key)
                elif not os.path.isdir(path):
                    os.unlink(path)
                    folders.add(os.path.dirname(path))
        for folder in folders:
            sync_folder(folder)
        return None if keys else True

    @contextlib.contextmanager
    def _try_lock(self, key: str) -> Iterator[bool]:
        """Hold the key's lock, if it is free, against every thread and process that replaces or deletes it.

        The lock files are few and stay: one that came and went with its object could be held twice.
        """
        stripe = zlib.crc32(key.encode()) % LOCK_STRIPES
        fd = os.open(f"{self._root}/{LOCK_FOLDER}/{stripe:02x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            yield _flocked(fd)
        finally:
            os.close(fd)


def _flocked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _etag(status: os.stat_result) -> str:
    # `replace` makes the time grow strictly, so no state of an object comes back with an ETag it had before.
    # Without the inode it survives a backup that keeps times; without a hash it costs a list nothing.
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _etag(status), status.st_mtime_ns // 1000)


def _not_found(key: str) -> ObjectNotFound:
    return ObjectNotFound(f"there is no object {key}")


def _open_object(key: str, path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise _not_found(key) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_found(key)
    return fd


def _take_page(walk: Iterator[tuple[str, os.stat_result]]) -> Sequence[ObjectInfo]:
    return [_info(key, status) for key, status in itertools.islice(walk, LIST_PAGE)]


def _write_block(temp: PartFile, stream: ExactStream, block: bytes) -> None:
    stream.add(block)
    temp.write(block)


async def _in_blocks(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same bytes in blocks worth a trip to a thread."""
    block = bytearray()
    async for chunk in chunks:
        block += chunk
        if len(block) >= STREAM_CHUNK_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)
