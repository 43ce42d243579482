"""Files with keys and hashes. A reader always finds one whole version."""

import os
import re
from pathlib import Path

from filer.clock import Clock
from filer.errors import InvalidInput

# A ULID, or the number of a process, as it was before: in a container, a later process has the same number.
_UNFINISHED = re.compile(r"\..+\.([0-9A-Z]{26}|[0-9]+)")


def write_replacing(path: Path, text: str, *, mode: int, clock: Clock) -> None:
    """Replace a file, whole or not at all: a reader finds the old version or the new one.

    Raises `InvalidInput` if there is no such folder.
    """
    if not path.parent.is_dir():
        raise InvalidInput(f"{path} cannot be written: there is no folder {path.parent}")
    beside = path.with_name(f".{path.name}.{clock.ulid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def delete_unfinished(path: Path) -> None:
    """Delete files that killed writers of this file have left. A writer at work now fails, and raises an error."""
    for each in path.parent.glob(f".{path.name}.*"):
        if _UNFINISHED.fullmatch(each.name):
            each.unlink(missing_ok=True)
