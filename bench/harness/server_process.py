"""Run a server to measure as a separate process: the floor or a real `mq serve`, on a temporary folder."""

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
_ROOT = Path(__file__).parents[2]
_SIGN = "listening on "


class BenchFailed(Exception):
    """The measurement is impossible or meaningless; the message says why."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder in a memory file system, removed at the end. A shared disk is too noisy for comparisons."""
    if not MEMORY_FILES.is_dir():
        raise BenchFailed(f"there is no {MEMORY_FILES}: the bench needs this memory file system of Linux")
    folder = Path(tempfile.mkdtemp(prefix="braidmq-bench-", dir=MEMORY_FILES))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def back_free_memory(folder: Path, size_bytes: int) -> None:
    """Have the host give this machine so much memory, which is free then and goes to whoever writes to `folder` next.

    A virtual machine gives free memory back to its host within seconds. Getting it again costs the one that writes
    first many times what writing costs: it was 1 to 40 % of a broker's processor time from one run to the next.
    """
    ballast = folder / "ballast"
    piece = bytes(16 * 1024**2)
    with ballast.open("wb") as file:
        for _ in range(-(-size_bytes // len(piece))):
            file.write(piece)
    ballast.unlink()


@contextlib.contextmanager
def floor_server() -> Iterator[str]:
    """Run the floor server; yields its URL."""
    with scratch_folder() as folder, _server("bench.harness.floor_server", [str(folder)]) as url:
        yield url


@contextlib.contextmanager
def broker() -> Iterator[tuple[str, Path]]:
    """Run a broker with default settings; yields its URL and its data folder."""
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
        with _server("mq.cli.main", arguments) as url:
            yield url, folder / "data"


@contextlib.contextmanager
def measured_broker() -> Iterator[tuple[str, int]]:
    """Run a broker with default settings; yields its URL and its pid."""
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
        with running_server("mq.cli.main", arguments) as running:
            yield running


@contextlib.contextmanager
def counting_broker(folder: Path, side: str) -> Iterator[str]:
    """Run a broker in `bench.harness.counting_server`, which writes `report.json` at its end; yields its URL."""
    serving = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
    with _server("bench.harness.counting_server", [side, str(folder / "report.json"), *serving]) as url:
        yield url


@contextlib.contextmanager
def _server(module: str, arguments: Sequence[str]) -> Iterator[str]:
    with running_server(module, arguments) as (url, _):
        yield url


@contextlib.contextmanager
def running_server(
    module: str,
    arguments: Sequence[str],
    *,
    checkout: Path = _ROOT,
    open_files: int | None = None,
    log: Path | None = None,
) -> Iterator[tuple[str, int]]:
    """Run a module of a checkout of the project, by its own Python if it is another one; yields its URL and its pid.

    With `open_files` the process may have no more files open than that. `log` gets what it writes to stderr.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BRAIDMQ_")}
    paths = [str(checkout), str(checkout / "clients"), environment.get("PYTHONPATH", "")]
    python = sys.executable if checkout == _ROOT else str(checkout / ".venv" / "bin" / "python")
    command = [
        *([] if open_files is None else ["prlimit", f"--nofile={open_files}:{open_files}"]),
        python,
        "-m",
        module,
        *arguments,
    ]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    with contextlib.nullcontext() if log is None else log.open("wb") as stderr:
        process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    assert process.stdout is not None
    try:
        yield _address(process.stdout, module), process.pid
    finally:
        stop(process)
        process.stdout.close()


def stop(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """Ask a server to end, and kill it if it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _address(output: IO[str], module: str) -> str:
    for line in output:
        if _SIGN in line:
            # Drain its further output, so that it cannot fill the pipe.
            threading.Thread(target=output.read, daemon=True).start()
            return line.split(_SIGN)[1].split()[0]
    raise BenchFailed(f"{module} ended before it listened")
