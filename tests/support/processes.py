"""Child processes of tests: what they inherit, how they end."""

import os
import socket
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
STOP_SECONDS = 10


def child_environment() -> dict[str, str]:
    """This process's environment with the repository's packages on the path of Python."""
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "clients")])
    return {**os.environ, "PYTHONPATH": path}


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
