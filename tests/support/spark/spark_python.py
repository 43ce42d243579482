"""A Python for Spark that starts at once: what to set `PYSPARK_PYTHON` to.

Spark has Python processes of its own for each driver and each executor: one to look for data sources, one to plan, one
to read, and so on. Each imports pandas, pyarrow and the client, which takes longer than most of what tests ask. Here
they are forked from a process that has imported all that, a `tests.support.process.fork_server` behind a socket.
"""

import atexit
import os
import shlex
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path

from tests.support.process.fork_server import Program, receive
from tests.support.process.forked_process import ForkServer

_NAME = "QUICK_SPARK_PYTHON"
_CLIENT = Path(__file__).with_name("forked_program.py")
_BACKLOG = 128


def quick_python() -> str:
    """The path of the program; that of this Python unless this process or a parent called `start_python_quickly`."""
    return os.environ.get(_NAME, sys.executable)


def start_python_quickly() -> None:
    """Provide a `quick_python` for this process and its children, until it ends."""
    folder = Path(tempfile.mkdtemp(prefix="braidmq-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))
    listener.listen(_BACKLOG)
    threading.Thread(target=_serve, args=(listener,), daemon=True).start()
    os.environ[_NAME] = str(_program(folder))


def _program(folder: Path) -> Path:
    """Has Spark's own modules forked; for everything else it is this Python."""
    python, client, address = (shlex.quote(str(each)) for each in (sys.executable, _CLIENT, folder / "socket"))
    program = folder / "python"
    program.write_text(
        f"""#!/bin/sh
case "$1 $2" in
    "-m pyspark."*) shift; exec {python} -I -S {client} {address} "$@";;
esac
exec {python} "$@"
"""
    )
    program.chmod(0o700)
    return program


def _serve(listener: socket.socket) -> None:
    """Pass requests on to a fork server, which starts with the first and tells those who asked how it ended."""
    server: ForkServer | None = None
    while True:
        asking, _ = listener.accept()
        with asking:
            line, descriptors = receive(asking)
            if line.endswith(b"\n"):
                server = server or ForkServer()
                server.start(Program.from_line(line), [*descriptors, asking.fileno()])
            for descriptor in descriptors:
                os.close(descriptor)
