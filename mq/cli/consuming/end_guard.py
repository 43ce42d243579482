"""Ends the commands of an `mq work` that was killed: a process of its own, started by this file's path.

A line of its stdin is the id of a process group that has begun, or, negated, of one that has ended. Its stdin ends with
`mq work`, also by SIGKILL.
"""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Read until the end, and kill all groups that have not ended."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    running: set[int] = set()
    for line in sys.stdin:
        group = int(line)
        running.discard(-group)
        if group > 0:
            running.add(group)
    for group in running:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
