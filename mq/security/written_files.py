"""Files with keys and hashes, written so that a reader finds one version or the other."""

import os
from pathlib import Path

from filer.errors import InvalidInput


def write_replacing(path: Path, text: str, *, mode: int) -> None:
    """Put a file in the place of the one before, whole or not at all: a reader finds one or the other.

    Raises `InvalidInput` if there is no such folder.
    """
    if not path.parent.is_dir():
        raise InvalidInput(f"{path} cannot be written: there is no folder {path.parent}")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
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
