"""A folder for tests that make many thousand files and do not need them to survive a power failure."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 1024**3


@contextlib.contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is room, since a disk takes milliseconds to sync each file. Removed at the end."""
    roomy = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free >= _NEEDED_BYTES
    with tempfile.TemporaryDirectory(prefix="braidmq-test-", dir=_IN_MEMORY if roomy else None) as folder:
        yield Path(folder)
