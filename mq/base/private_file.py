"""Whether other users than its owner may read a file with a secret: decided as ssh does for keys."""

import os
import stat
from pathlib import Path

from filer.errors import InvalidInput
from filer.event_log import EventLog

_log = EventLog(__name__)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def is_open_to_others(mode: int, owner: int, user: int) -> bool:
    """Whether the group or others may do anything with a file of that mode, which is the user's own.

    A file of another user, such as a secret of Kubernetes that is mounted as root's, is for that user to protect.
    """
    return owner == user and bool(mode & _OTHERS)


def how_open(path: Path) -> str | None:
    """Return what is wrong with a file of secrets, and what would be right; None if nothing is, or there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not is_open_to_others(found.st_mode, found.st_uid, os.geteuid()):
        return None
    mode = stat.S_IMODE(found.st_mode)
    return f"others may read {str(path)!r}, whose mode is {mode:04o}: chmod 600 keeps it to its owner"


def tell_if_open(path: Path) -> None:
    """Log that a file of secrets is open to others. Not starting the broker would do more harm."""
    wrong = how_open(path)
    if wrong is not None:
        _log.warning("secret_file_open", path=str(path), error=wrong)


def refuse_if_open(path: Path) -> None:
    """Raises `InvalidInput` for a file of secrets that is open to others: the caller's user is there to correct it."""
    wrong = how_open(path)
    if wrong is not None:
        raise InvalidInput(wrong)
