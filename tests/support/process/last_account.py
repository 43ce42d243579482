"""What a Python process that does not end is doing: its threads, its signals, and what it said."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import IO

TELLS_ITS_STACKS = {"PYTHONFAULTHANDLER": "1"}
"""The environment of a process that writes the stacks of all its threads to stderr when it is aborted."""
_ABORT_SECONDS = 10


def last_account(process: "subprocess.Popen[bytes]", stderr: IO[bytes]) -> str:
    """Abort a process, and return where each thread stood for the kernel and for Python, and the rest of its stderr."""
    seen = "\n".join(_thread(task) for task in sorted(Path(f"/proc/{process.pid}/task").glob("*")))
    os.kill(process.pid, signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ABORT_SECONDS)
    process.kill()
    # Its children may hold the pipe open.
    os.set_blocking(stderr.fileno(), False)
    said = stderr.read() or b""
    return f"{seen}\n{said.decode(errors='replace')}"


def _thread(task: Path) -> str:
    """A thread's id, name, state, the call of the kernel it waits in, and its signals: pending, blocked, caught."""
    with contextlib.suppress(OSError):
        told = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        signals = " ".join(f"{name} {told[name]}" for name in ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"))
        return f"{task.name} {told['Name']} {told['State']} in {(task / 'wchan').read_text() or '?'}; {signals}"
    return f"{task.name} is gone"
