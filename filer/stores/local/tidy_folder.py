"""A directory of objects that keeps no folders of the store's own: for tables, which other programs read.

Lock files, temporary files and their folders exist only while a process has the directory open, or after it was killed
until another process opens the directory. Brokers keep theirs: those of version 0.1 rely on lock files that stay.
"""

# Plain os calls, as in `object_folder`.
# ruff: noqa: PTH103, PTH106, PTH108, PTH112, PTH120, PTH208

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filer.clock import Clock
from filer.errors import OutcomeUnknown
from filer.stores.local.access import UMASK
from filer.stores.local.durable_file import remove_quietly, sync_folder
from filer.stores.local.object_folder import LOCK_FOLDER, TEMP_FOLDER, ObjectFolder, flocked, open_lock

_OPEN = ".open"
_TRIES = 100
"""A try is lost only if another process removes an empty folder, or a free lock, at the same moment."""


class TidyFolder(ObjectFolder):
    """As `ObjectFolder`, with locks that are removed.

    The holder of a lock removes its file while it holds the lock. So two never hold a lock at the same time: a process
    that gets the lock of a removed file sees that the file has no name any more. A holder that is killed leaves a file
    that no process has locked, and the next holder removes it.

    A process that has the directory open has a locked file beside its temporary ones. If no process has locked that
    file, its process is gone, and its temporary files are not needed any more.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        super().__init__(root, clock)
        self.access = UMASK
        self._temp_folder, self._lock_folder = f"{self.root}/{TEMP_FOLDER}", f"{self.root}/{LOCK_FOLDER}"
        self._presence = f"{self._temp_prefix}{_OPEN}"
        self._presence_fd = -1
        self._made: list[str] = []
        """The directory and the folders above it that were not there, the innermost first."""

    def open(self) -> None:
        """As `ObjectFolder.open`; also removes what killed processes have left."""
        above = (self.root, *map(str, Path(self.root).parents))
        self._made = [folder for folder in above if not os.path.isdir(folder)]
        for _ in range(_TRIES):
            # Another process that closes the directory at this moment may remove the folders again.
            with contextlib.suppress(FileNotFoundError):
                super().open()
                if (fd := _lock_of(self._presence)) is not None:
                    self._presence_fd = fd
                    return
        raise OutcomeUnknown(f"{self.root} was removed again and again while it was opened")

    @property
    def _own_folder(self) -> int:
        """As the umask says: other users may write the same table."""
        return UMASK.folder

    def _make_root(self) -> None:
        """A table is for other programs, which may open or close it. So it gets the umask's mode, as theirs do."""
        os.makedirs(self.root, exist_ok=True)

    def close(self) -> None:
        """Remove the store's own folders unless others use them, and folders of the path that were made in vain."""
        if self._presence_fd >= 0:
            os.unlink(self._presence)
            os.close(self._presence_fd)
        with contextlib.suppress(FileNotFoundError):
            self._sweep()
        for folder in (self._temp_folder, self._lock_folder, *self._made):
            with contextlib.suppress(OSError):
                # Only an empty folder can be removed.
                os.rmdir(folder)

    def _sweep(self) -> None:
        """Remove what killed processes have left: their temporary files, and locks without a holder."""
        for name in os.listdir(self._temp_folder):
            if name.endswith(_OPEN) and (fd := _lock_of(f"{self._temp_folder}/{name}", create=False)) is not None:
                self._remove_temps(name.removesuffix(_OPEN))
                os.unlink(f"{self._temp_folder}/{name}")
                os.close(fd)
        for name in os.listdir(self._lock_folder):
            if (fd := _lock_of(f"{self._lock_folder}/{name}", create=False)) is not None:
                os.unlink(f"{self._lock_folder}/{name}")
                os.close(fd)

    def _remove_temps(self, prefix: str) -> None:
        for name in os.listdir(self._temp_folder):
            if name.startswith(prefix) and not name.endswith(_OPEN):
                remove_quietly(f"{self._temp_folder}/{name}")

    def _settle(self, folder: str) -> None:
        """As `ObjectFolder._settle`, with all folders above: another process may have removed and remade them."""
        sync_folder(folder)
        while folder != self.root:
            folder = os.path.dirname(folder)
            sync_folder(folder)

    def _settle_deleted(self, folder: str) -> None:
        """As `ObjectFolder._settle_deleted`; removes folders that are empty now. `create` makes them when needed."""
        with contextlib.suppress(FileNotFoundError):
            # Another process may have removed it.
            super()._settle_deleted(folder)
        with contextlib.suppress(OSError):
            while folder != self.root:
                os.rmdir(folder)
                folder = os.path.dirname(folder)

    @contextlib.contextmanager
    def _try_lock(self, key: str) -> Iterator[bool]:
        """As `ObjectFolder._try_lock`. The lock is removed while it is held.

        If we stop before that, the lock is free, and the next process that opens the directory removes the file.
        """
        path = self._lock_path(key)
        fd = self._lock_in_its_folder(path)
        if fd is None:
            yield False
            return
        try:
            yield True
        finally:
            os.unlink(path)
            os.close(fd)

    def _lock_in_its_folder(self, path: str) -> int | None:
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                return _lock_of(path)
            os.makedirs(self._lock_folder, exist_ok=True)
        return None


def _lock_of(path: str, *, create: bool = True) -> int | None:
    """A descriptor that locks the file of this name; None if another one does, or if it has just been removed.

    A lock file without a name was removed by its holder. Lock files never get other names.
    """
    try:
        fd = open_lock(path, UMASK.file) if create else os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        if create:
            raise
        return None
    if flocked(fd) and os.fstat(fd).st_nlink > 0:
        return fd
    os.close(fd)
    return None
