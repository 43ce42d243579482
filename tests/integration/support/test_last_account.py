"""A process that does not end tells why."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.process.last_account import TELLS_ITS_STACKS, last_account
from tests.support.process.processes import until

_DEAF = """
import signal, sys, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
def deaf():
    threading.Event().wait()
threading.Thread(target=deaf, daemon=True).start()
print("before", file=sys.stderr, flush=True)
print("here", flush=True)
deaf()
"""


def test_it_tells_its_threads_its_signals_and_what_it_said() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _DEAF],
        env={**os.environ, **TELLS_ITS_STACKS},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"here\n"
        tasks = Path(f"/proc/{process.pid}/task")
        until(lambda: all("S (sleeping)" in (task / "status").read_text() for task in tasks.iterdir()))
        process.send_signal(signal.SIGINT)
        told = last_account(process, process.stderr)
    assert process.returncode == -signal.SIGABRT
    assert told.count("S (sleeping)") == 2 and "ShdPnd 0000000000000002" in told
    assert "\nbefore\n" in told and told.count("in deaf\n") == 2
