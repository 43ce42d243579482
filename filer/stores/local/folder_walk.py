"""Lists a directory tree in the order of object keys."""

# Plain os calls: making a Path costs more than the system call, and folders hold 100,000 names.
# ruff: noqa: PTH116

import os
import stat
from collections.abc import Iterator


def walk_folder(root: str, prefix: str, *, after: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Keys that start with `prefix` and come after `after`, in the order of their UTF-8 bytes, each with its status.

    Names that begin with a dot are left out, and so are files deleted meanwhile. A name that is left out costs no
    `stat`.
    """
    folder, slash, partial = prefix.rpartition("/")
    folder += slash
    if after.startswith(folder):
        return _walk(f"{root}/{folder}", folder, partial, after[len(folder) :])
    return iter(()) if after > folder else _walk(f"{root}/{folder}", folder, partial, "")


def _walk(path: str, key: str, partial: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """The keys that start with `partial` and come after `after`, both relative to the folder."""
    for name in _names(path, partial, after):
        if name.endswith("/"):
            below = after.removeprefix(name) if after.startswith(name) else ""
            yield from _walk(path + name, key + name, "", below)
            continue
        try:
            status = os.stat(path + name)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield key + name, status


def _names(path: str, partial: str, after: str) -> list[str]:
    """The folder's names in order of keys: a subfolder's name ends in `/`, as it does within a key."""
    names = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(".") or not name.startswith(partial):
                    continue
                if entry.is_dir():
                    name += "/"
                    if after.startswith(name):
                        names.append(name)
                        continue
                if name > after:
                    names.append(name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(filter(_is_utf8, names))


def _is_utf8(name: str) -> bool:
    """Whether the name on disk is valid UTF-8. We write no other names."""
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def holds_object(path: str) -> bool:
    """Whether there is an object anywhere below the folder."""
    folders = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.is_file():
                    return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(holds_object(folder) for folder in folders)
