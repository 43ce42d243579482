"""Child processes of tests: what they inherit, how they end."""

import atexit
import os
import socket
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
STOP_SECONDS = 10
_children: list["subprocess.Popen[str]"] = []


def child_environment() -> dict[str, str]:
    """This process's environment with the repository's packages on the path of Python."""
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "clients")])
    return {**os.environ, "PYTHONPATH": path}


def end_with_us(process: "subprocess.Popen[str]") -> None:
    """Have a process killed when this one ends, should an interrupt at the wrong line have kept it from being stopped.

    Also one that stands still: SIGKILL reaches those.
    """
    _children[:] = [child for child in _children if child.poll() is None]
    _children.append(process)


@atexit.register
def _kill_children() -> None:
    for child in _children:
        if child.poll() is None:
            child.kill()
            child.wait()


def stop(process: subprocess.Popen[str]) -> None:
    """End a process, politely at first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port nobody listens on at the moment, for programs that cannot pick one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
