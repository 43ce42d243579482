"""Closes a store's directory to other users, whatever the umask, unless its folder is open to its group."""

# Plain os calls, as in `object_folder`.
# ruff: noqa: PTH101, PTH102, PTH112, PTH116, PTH120

import os
import stat
from typing import NamedTuple

from filer.event_log import EventLog

OWN_FOLDER = 0o700
"""The mode of folders that no other user may use: users that only read objects must not hold up locks either."""

_log = EventLog(__name__)


class Access(NamedTuple):
    """The modes of new folders and files. The process's umask takes away from them."""

    folder: int
    file: int


OWNER, GROUP, UMASK = Access(OWN_FOLDER, 0o600), Access(0o750, 0o640), Access(0o777, 0o666)


def access_by(mode: int) -> Access:
    """What a store's folder of that mode allows others: its group reads if the mode allows it, all others do nothing.

    If the mode lets all others in, no user has decided that: a umask has left it so.
    """
    is_shared = mode & GROUP.folder == GROUP.folder and not mode & stat.S_IRWXO
    return GROUP if is_shared else OWNER


def close_to_others(folder: str, most: int) -> bool:
    """Take away what a folder lets group and others do beyond the mode `most`, and log it. Returns whether it was open.

    Leaves alone a folder of another user, and one in which all users may write: that is no user's store.
    """
    found = os.stat(folder, follow_symlinks=False)
    mode = stat.S_IMODE(found.st_mode)
    too_much = mode & (stat.S_IRWXG | stat.S_IRWXO) & ~most
    if not too_much or not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or mode & stat.S_ISVTX:
        return False
    os.chmod(folder, mode & ~too_much)
    _log.warning("store_closed_to_others", path=folder, mode_before=f"{mode:04o}", mode=f"{mode & ~too_much:04o}")
    return True


def make_folders(path: str, mode: int) -> None:
    """Make a folder and those above it that are missing, all with that mode. Raises `OSError`."""
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        make_folders(os.path.dirname(path), mode)
        make_folders(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
