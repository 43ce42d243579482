"""Whether another user controls a file or folder: what it has placed there is no secret."""

import os
import stat
from pathlib import Path

from filer.errors import InvalidInput

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def why_not_own(mode: int, owner: int, user: int) -> str | None:
    """Return why other users control what is there, and what would be right; None if the user alone does.

    Root counts as another user, too: mounted secrets are read by brokers, but here secrets are made.
    """
    if stat.S_ISLNK(mode):
        return "is a link, so what is there may be another's: put a folder or file of your own in its place"
    if owner != user:
        return f"belongs to user {owner} and not to you, who are user {user}: take a folder of your own with --data"
    if mode & _OTHERS_WRITE:
        return f"may be written by others, with its mode {stat.S_IMODE(mode):04o}: chmod go-w keeps it to its owner"
    return None


def refuse_if_not_own(path: Path) -> None:
    """Raises `InvalidInput` for a file that others may have placed. A missing one is fine."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    wrong = why_not_own(found.st_mode, found.st_uid, os.geteuid())
    if wrong is not None:
        raise InvalidInput(f"{str(path)!r} {wrong}")


def keep_to_owner(folder: Path) -> None:
    """Make a folder that is for its owner alone. Raises `InvalidInput` if it is another user's, or a link."""
    folder.mkdir(mode=0o700, exist_ok=True)
    refuse_if_not_own(folder)
    # By its descriptor: a link that takes its place meanwhile is not followed, and `os.open` raises.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
