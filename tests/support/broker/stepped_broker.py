"""`mq` whose wall clock may be stepped while it runs: `python -m tests.support.broker.stepped_broker serve ...`.

CLOCK_STEP names a file of eight bytes: the seconds, as a little-endian double, that its clock is ahead of this
machine's. Whoever writes the file steps the clock. Its monotonic clock goes on as it is, as in a real step.
"""

import mmap
import os
import struct
import sys
from pathlib import Path
from unittest import mock

from filer.clock import SystemClock
from mq.cli.main import main

CLOCK_STEP = "CLOCK_STEP"
_FORM = struct.Struct("<d")


class SteppedClock(SystemClock):
    """The clock of this machine, and the step in a file."""

    def __init__(self) -> None:
        super().__init__()
        with Path(os.environ[CLOCK_STEP]).open("rb") as file:
            self._step = mmap.mmap(file.fileno(), _FORM.size, access=mmap.ACCESS_READ)

    def now_us(self) -> int:
        """As the machine's, stepped."""
        return super().now_us() + int(_FORM.unpack_from(self._step)[0] * 1e6)


def step_clock(path: Path, seconds: float) -> None:
    """Step the clock of the broker that reads this file, to so many seconds ahead."""
    if not path.exists():
        path.write_bytes(_FORM.pack(seconds))
        return
    # In place: the broker has mapped this very file.
    with path.open("r+b") as file:
        file.write(_FORM.pack(seconds))


if __name__ == "__main__":
    with mock.patch("mq.process.server.SystemClock", SteppedClock):
        sys.exit(main())
