"""The calls of a local store as blocking functions, which run in its threads.

A file appears under its name whole and durable, or not at all. It is written and synced under `.tmp/` first, and then
linked to its name. Linking fails if the name is taken, by any process on any machine that shares the directory.
A process that is killed at any line leaves at most a file in `.tmp/`. These files are swept when they are an hour old.
"""

# Plain os calls: making a Path costs more than the system call, and every write comes through here.
# ruff: noqa: PTH100, PTH103, PTH104, PTH108, PTH112, PTH116, PTH120, PTH208

import contextlib
import fcntl
import itertools
import os
import stat
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from filer.clock import Clock
from filer.errors import EtagMismatch, ObjectExists, ObjectNotFound, OutcomeUnknown, StoreRefused
from filer.stores.byte_range import resolve_range
from filer.stores.exact_stream import ExactStream
from filer.stores.local.access import OWN_FOLDER, OWNER, access_by, close_to_others, make_folders
from filer.stores.local.durable_file import (
    PartFile,
    open_new,
    remove_quietly,
    sync_folder,
    write_durable,
    write_durable_later,
)
from filer.stores.local.folder_walk import holds_object, walk_folder
from filer.stores.object_keys import check_key
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo

TEMP_FOLDER = ".tmp"
LOCK_FOLDER = ".locks"
LOCK_STRIPES = 256
TEMP_LIFETIME_SECONDS = 3600
LINK_TRIES = 3
SETTLED_FOLDERS = 10_000


class ObjectFolder:
    """A directory of objects. Any number of threads may call its methods. They raise `OSError` as it comes."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = os.path.abspath(root)
        self.access = OWNER
        self._clock = clock
        self._temp_prefix = f"{self.root}/{TEMP_FOLDER}/{clock.ulid()}-"
        self._temp_numbers = itertools.count()
        # Folders whose own names are known to be durable: a power failure loses nothing in them.
        self._settled: set[str] = set()

    def path_of(self, key: str) -> str:
        """The path of an object. Raises `InvalidInput` for a key that no store takes."""
        return f"{self.root}/{check_key(key)}"

    def new_temp(self) -> str:
        """A path for a temporary file that no other process uses."""
        return f"{self._temp_prefix}{next(self._temp_numbers)}"

    def open(self) -> None:
        """Create the directory and its folders durably, and sweep old temporary files."""
        missing = [self.root]
        while not os.path.isdir(missing[-1]):
            missing.append(os.path.dirname(missing[-1]))
        self._make_root()
        for name in (TEMP_FOLDER, LOCK_FOLDER):
            make_folders(f"{self.root}/{name}", self._own_folder)
        for folder in missing[1:]:
            sync_folder(folder)
        self._sweep()

    @property
    def _own_folder(self) -> int:
        """The mode of folders that only stores use."""
        return OWN_FOLDER

    def _make_root(self) -> None:
        """Create the directory if it is missing, for its owner alone. Leave it open to its group if it is.

        Earlier versions created directory and locks as the umask said; the locks show that. A directory that belonged
        to another program before keeps its mode: only what we create in it is closed. One opened later on purpose stays
        open.
        """
        os.makedirs(os.path.dirname(self.root), exist_ok=True)
        make_folders(self.root, OWNER.folder)
        names = os.listdir(self.root)
        was_open = not names
        for name in (TEMP_FOLDER, LOCK_FOLDER):
            if name in names:
                was_open |= close_to_others(f"{self.root}/{name}", OWN_FOLDER)
        found = os.stat(self.root)
        self.access = access_by(found.st_mode)
        if was_open and found.st_uid == os.geteuid():
            close_to_others(self.root, self.access.folder)
        elif found.st_uid != os.geteuid():
            # A mounted volume is an example: its folder is not ours to close, but the folders in it are.
            for name in names:
                close_to_others(f"{self.root}/{name}", self.access.folder)

    def close(self) -> None:
        """Do what is left to do once no call is under way. Our own folders stay: brokers of any version use them."""

    def _sweep(self) -> None:
        """Remove the temporary files of processes that were killed."""
        too_old_ns = (self._clock.now_us() - TEMP_LIFETIME_SECONDS * 1_000_000) * 1000
        with os.scandir(f"{self.root}/{TEMP_FOLDER}") as entries:
            for entry in entries:
                # Another process may sweep at the same time.
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime_ns < too_old_ns:
                        os.unlink(entry.path)

    def tell_time_us(self) -> int:
        """The time of the file system, by which it stamps a new file."""
        temp = self.new_temp()
        fd = open_new(temp, self.access.file)
        try:
            return _changed_us(os.fstat(fd))
        finally:
            os.close(fd)
            remove_quietly(temp)

    def create(self, key: str, data: Data | MakeData) -> int:
        """As `Store.create`; returns a time of the file system at which the object had its name."""
        final = self.path_of(key)
        temp = self.new_temp()
        try:
            write_durable(temp, data() if callable(data) else data, self.access.file)
            self._link(temp, final)
        finally:
            remove_quietly(temp)
        self._settle(final[: final.rindex("/")])
        try:
            # Linking sets this time. So it is no earlier than the name, however long this thread stood still before.
            return _changed_us(os.stat(final))
        except FileNotFoundError:
            # Deleted already.
            return self.tell_time_us()

    def _link(self, temp: str, final: str) -> None:
        for _ in range(LINK_TRIES):
            try:
                return os.link(temp, final)
            except FileExistsError:
                if os.path.isdir(final):
                    raise StoreRefused(f"{final} is a folder: other objects lie below that key") from None
                # An earlier try of this call may have linked it and failed before it synced the folder.
                self._settle(os.path.dirname(final))
                raise ObjectExists(f"{final} exists already") from None
            except FileNotFoundError:
                make_folders(os.path.dirname(final), self.access.folder)
        raise OutcomeUnknown(f"{final} was not written: {temp} was removed meanwhile")

    def _settle(self, folder: str) -> None:
        """Make the names in the folder durable, and those of the folders above it unless they are known to be.

        Goes up to the first folder that is known: that one has a new name in it, and its own name is durable.
        """
        sync_folder(folder)
        settled = []
        while folder != self.root and folder not in self._settled:
            settled.append(folder)
            folder = os.path.dirname(folder)
            sync_folder(folder)
        # Only now: another thread that finds one of them known relies on all of the above.
        if len(self._settled) + len(settled) > SETTLED_FOLDERS:
            self._settled.clear()
        self._settled.update(settled)

    def finish_stream(self, key: str, temp: PartFile, stream: ExactStream) -> str:
        """Give a written temporary file its name; the SHA-256 of its bytes."""
        digest = stream.finish()
        final = self.path_of(key)
        temp.sync()
        self._link(temp.path, final)
        self._settle(os.path.dirname(final))
        return digest

    def try_replace(self, key: str, data: Data, etag: str) -> str | None:
        """The new ETag; None if another holds the lock."""
        final = self.path_of(key)
        with self._try_lock(key) as held:
            if not held:
                return None
            try:
                before = os.stat(final)
            except (FileNotFoundError, NotADirectoryError):
                raise EtagMismatch(f"{key} is gone") from None
            if _etag(before) != etag:
                raise EtagMismatch(f"{key} has changed since it was read")
            temp = self.new_temp()
            try:
                after = write_durable_later(temp, data, self.access.file, than_ns=before.st_mtime_ns)
                os.rename(temp, final)
            finally:
                remove_quietly(temp)
            self._settle(os.path.dirname(final))
            return _etag(after)

    def get(self, key: str, start: int, stop: int | None) -> tuple[Fetched, int]:
        """As `Store.get`; also the time of the file system at which the object got its name, or later."""
        fd = _open_object(key, self.path_of(key))
        try:
            status = os.fstat(fd)
            info = _info(key, status)
            first, last = resolve_range(start, stop, info.size_bytes)
            parts = []
            while first < last and (part := os.pread(fd, last - first, first)):
                parts.append(part)
                first += len(part)
            return Fetched(parts[0] if len(parts) == 1 else b"".join(parts), info), _changed_us(status)
        finally:
            os.close(fd)

    def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        try:
            status = os.stat(self.path_of(key))
        except (FileNotFoundError, NotADirectoryError):
            raise _not_found(key) from None
        if not stat.S_ISREG(status.st_mode):
            raise _not_found(key)
        return _info(key, status)

    def walk(self, prefix: str, *, after: str | None, limit: int | None) -> Iterator[ObjectInfo]:
        """The objects below a prefix, in the order of their keys. Reads the directory as it is iterated."""
        walk = itertools.islice(walk_folder(self.root, prefix, after=after or ""), limit)
        return (_info(key, status) for key, status in walk)

    def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`; leaves out folders without an object."""
        try:
            with os.scandir(f"{self.root}/{prefix}") as entries:
                found = [entry for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(entry.name for entry in found if holds_object(entry.path))

    def try_delete(self, keys: deque[str]) -> bool | None:
        """Delete the objects and remove their keys from `keys`; None if others hold the locks of those that remain."""
        folders = set()
        for _ in range(len(keys)):
            key = keys.popleft()
            path = self.path_of(key)
            with self._try_lock(key) as held, contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if not held:
                    keys.append(key)
                elif not os.path.isdir(path):
                    os.unlink(path)
                    folders.add(os.path.dirname(path))
        for folder in folders:
            self._settle_deleted(folder)
        return None if keys else True

    def _settle_deleted(self, folder: str) -> None:
        """Make it durable that names of the folder were deleted."""
        sync_folder(folder)

    @contextlib.contextmanager
    def _try_lock(self, key: str) -> Iterator[bool]:
        """Hold the key's lock if it is free, against every thread and process that replaces or deletes the object.

        There are few lock files and they are never removed. If a lock file were created and deleted with its object,
        two processes could hold the lock at the same time: one on the deleted file, one on the new file.
        """
        fd = open_lock(self._lock_path(key))
        try:
            yield flocked(fd)
        finally:
            os.close(fd)

    def _lock_path(self, key: str) -> str:
        return f"{self.root}/{LOCK_FOLDER}/{zlib.crc32(key.encode()) % LOCK_STRIPES:02x}"


def open_lock(path: str, mode: int = OWNER.file) -> int:
    """A descriptor of a lock file, which is created if there is none. Raises `OSError`."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)


def flocked(fd: int) -> bool:
    """Whether the file is locked now, by this descriptor."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _etag(status: os.stat_result) -> str:
    # `replace` makes the time grow strictly, so no later state of an object has an ETag of an earlier one. The inode is
    # not part of it, so that it survives a backup that keeps times. Nor is a hash, so that listing reads no contents.
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _etag(status), status.st_mtime_ns // 1000)


def _changed_us(status: os.stat_result) -> int:
    return status.st_ctime_ns // 1000


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
