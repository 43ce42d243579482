"""What a process uses: processor time and memory, as Linux tells them."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MIB_KB = 1024


@dataclass(slots=True)
class Use:
    """What a process used for some time: processor time, and its memory at the end.

    Memory is its share (PSS): what several processes have in common counts for each of them in part.
    """

    seconds: float = 0.0
    processor_seconds: float = 0.0
    memory_mib: float = 0.0


def processor_seconds(pid: int) -> float:
    """The processor time of a process so far."""
    user, system = _times(pid)[:2]
    return user + system


def processor_seconds_with_children(pid: int) -> float:
    """The same, and that of its children that have ended."""
    return sum(_times(pid))


def _times(pid: int) -> list[float]:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:15]]


def memory_mib(pid: int) -> float:
    """The memory of a process (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / _MIB_KB
    raise OSError(f"the kernel tells no PSS of process {pid}")


@contextlib.contextmanager
def used_by(pid: int) -> Iterator[Use]:
    """What a process uses within `with`; it is told at the end."""
    use = Use()
    began_seconds, had_seconds = time.perf_counter(), processor_seconds(pid)
    yield use
    use.seconds, use.processor_seconds = time.perf_counter() - began_seconds, processor_seconds(pid) - had_seconds
    use.memory_mib = memory_mib(pid)
