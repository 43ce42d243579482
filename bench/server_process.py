"""A server under load as a process of its own: the floor or a real `mq serve`, on a folder that goes with it."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

MEMORY_FILES = Path("/dev/shm")
STOP_SECONDS = 30
_ROOT = Path(__file__).parents[1]
_SIGN = "listening on "


class BenchFailed(Exception):
    """The measurement cannot be made, or means nothing; the message says why."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder in a memory file system (a shared disk is too noisy to compare on), removed at the end."""
    if not MEMORY_FILES.is_dir():
        raise BenchFailed(f"there is no {MEMORY_FILES}: the bench needs a file system in memory, as Linux has there")
    folder = Path(tempfile.mkdtemp(prefix="braidmq-bench-", dir=MEMORY_FILES))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def floor_server() -> Iterator[str]:
    """The floor; its address."""
    with scratch_folder() as folder, _server("bench.floor_server", [str(folder)]) as url:
        yield url


@contextlib.contextmanager
def broker() -> Iterator[tuple[str, Path]]:
    """A broker with the settings it has by default; its address and its data folder."""
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
        with _server("mq.cli.main", arguments) as url:
            yield url, folder / "data"


@contextlib.contextmanager
def measured_broker() -> Iterator[tuple[str, int]]:
    """A broker with the settings it has by default; its address and its process."""
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
        with _running("mq.cli.main", arguments) as running:
            yield running


@contextlib.contextmanager
def counting_broker(folder: Path, side: str) -> Iterator[str]:
    """A broker as `bench.counting_server` has it; its address. At its end `report.json` in the folder tells of it."""
    serving = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
    with _server("bench.counting_server", [side, str(folder / "report.json"), *serving]) as url:
        yield url


@contextlib.contextmanager
def _server(module: str, arguments: Sequence[str]) -> Iterator[str]:
    with _running(module, arguments) as (url, _):
        yield url


@contextlib.contextmanager
def _running(module: str, arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BRAIDMQ_")}
    paths = [str(_ROOT), str(_ROOT / "clients"), environment.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env=environment | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield _address(process.stdout, module), process.pid
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _address(output: IO[str], module: str) -> str:
    for line in output:
        if _SIGN in line:
            # Whatever else it prints must not fill the pipe.
            threading.Thread(target=output.read, daemon=True).start()
            return line.split(_SIGN)[1].split()[0]
    raise BenchFailed(f"{module} ended before it listened")
