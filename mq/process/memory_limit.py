"""How much memory this process may have."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_GROUPS = "sys/fs/cgroup"
_OF_VERSION_1 = f"{_GROUPS}/memory"


def memory_limit_bytes(root: Path) -> int | None:
    """Return the least limit of its control groups and the machine; None if the system does not report it.

    Linux has them below `root`. In a container, `/sys/fs/cgroup` begins at the container's own group, whatever the
    process's path is: a missing path does not count, and `/` does.
    """
    found = [limit for file in _limit_files(root) if (limit := _number(file)) is not None]
    if (memory := _of_machine(root / "proc/meminfo")) is not None:
        found.append(memory)
    return min(found, default=None)


def _limit_files(root: Path) -> Iterator[Path]:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            folder, name = _GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = _OF_VERSION_1, "memory.limit_in_bytes"
        else:
            continue
        # A group has no more than its parents.
        for group in (PurePosixPath(path), *PurePosixPath(path).parents):
            yield root / folder / str(group).lstrip("/") / name


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _of_machine(file: Path) -> int | None:
    for line in _text(file).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii")
    except OSError:
        return ""
