"""A file of secrets is replaced whole, also after a writer with the same number was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from filer.clock import SystemClock
from mq.security.written_files import delete_unfinished, write_replacing

KILLED = """
import os, signal, sys
from pathlib import Path
from filer.clock import SystemClock
from mq.security.written_files import write_replacing
os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
write_replacing(Path(sys.argv[1]), "half", mode=0o600, clock=SystemClock())
"""


def test_a_writer_that_was_killed_hinders_nobody_and_is_cleared_away(tmp_path: Path) -> None:
    file, another = tmp_path / "ca.key", tmp_path / ".ca.key.mine"
    file.write_text("before")
    another.touch()
    assert subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False).returncode == -signal.SIGKILL
    # As an earlier version named it: by the number of its process, which is this one's now.
    (tmp_path / f".ca.key.{os.getpid()}").touch()
    assert file.read_text() == "before" and len(list(tmp_path.iterdir())) == 4
    write_replacing(file, "after", mode=0o600, clock=SystemClock())
    assert file.read_text() == "after" and file.stat().st_mode & 0o777 == 0o600
    delete_unfinished(file)
    assert sorted(tmp_path.iterdir()) == [another, file]
