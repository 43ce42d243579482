"""Files with keys and hashes, written so that a reader finds one version or the other."""

import os
import re
from pathlib import Path

from filer.clock import Clock
from filer.errors import InvalidInput

# A ULID, or the number of a process, as it was before: in a container, a later process has the same number.
_UNFINISHED = re.compile(r"\..+\.([0-9A-Z]{26}|[0-9]+)")


def write_replacing(path: Path, text: str, *, mode: int, clock: Clock) -> None:
    """Put a file in the place of the one before, whole or not at all: a reader finds one or the other.

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
    """Delete what writers of this file have left that were killed. Somebody who writes it just now fails, and tells."""
    for each in path.parent.glob(f".{path.name}.*"):
        if _UNFINISHED.fullmatch(each.name):
            each.unlink(missing_ok=True)
