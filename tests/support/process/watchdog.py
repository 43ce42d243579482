"""Kill the processes that a test run left behind, however it ended: `python -m tests.support.process.watchdog`.

It reads a process id a line from stdin. When that ends, the run has: by SIGKILL too, which no handler would see.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path


def born(pid: int) -> str | None:
    """Distinguishes a process from a later one with the same id; None if it has ended, or without /proc."""
    with contextlib.suppress(OSError):
        # The name, which may hold anything, ends with the last parenthesis.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def main() -> None:
    started = {pid: born(pid) for pid in (int(line) for line in sys.stdin)}
    for pid, birth in started.items():
        if born(pid) == birth:
            # SIGKILL, which reaches processes that stand still too.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
