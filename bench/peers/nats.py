"""NATS JetStream beside a broker: its server and its own bench, built from Go's module proxy.

JetStream acknowledges what it has written to its files, and syncs them every two minutes. Our local store syncs each
file before it acknowledges.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.harness.running import show_progress
from bench.harness.server_process import BenchFailed, scratch_folder

_VERSIONS = Path(__file__).with_name("versions.toml")
_FOLDER = Path(__file__).parents[2] / ".peers"
_READY = re.compile(r"Listening for client connections on (\S+)")
_RATE = re.compile(r"(?:aggregated stats|stats): ([\d,]+) msgs/sec")
STOP_SECONDS = 30
RUN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Nats:
    """The programs."""

    server: Path
    tool: Path


def nats() -> Nats:
    """Build them if they are not there. Raises `BenchFailed` without Go, or if a build fails."""
    versions = tomllib.loads(_VERSIONS.read_text())["nats"]
    return Nats(server=_built("nats-server", versions["server"]), tool=_built("nats", versions["tool"]))


def _built(name: str, module: str) -> Path:
    folder = _FOLDER / module.rpartition("@")[2] / name
    program = folder / name
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise BenchFailed("NATS is built with Go, and there is no go in PATH")
    show_progress(f"building {module}: some minutes, once")
    environment = os.environ | {"GOBIN": str(folder)}
    if subprocess.run([go, "install", module], env=environment).returncode:
        raise BenchFailed(f"go install {module} failed, as told above")
    return program


@contextlib.contextmanager
def jet_stream(programs: Nats) -> Iterator[str]:
    """Run a server with its files in memory; yields its address."""
    with scratch_folder() as folder:
        command = [str(programs.server), "-js", "-sd", str(folder / "nats"), "-a", "127.0.0.1", "-p", "-1"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            yield _address(process.stderr)
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)
            process.stderr.close()


def _address(output: IO[str]) -> str:
    for line in output:
        if found := _READY.search(line):
            return found[1]
    raise BenchFailed("nats-server ended before it listened")


def claimed_per_second(
    programs: Nats, *, messages: int, message_bytes: int, consumers: int, batch: int, double_ack: bool
) -> float:
    """How many messages a second a work queue gives to its consumers, who ack each of them.

    With `double_ack` a consumer waits for the answer to each ack, as ours do to one ack of a batch.
    """
    common = ["--size", f"{message_bytes}B", "--msgs", f"{messages}", "--no-progress"]
    with jet_stream(programs) as address:
        _run(programs, address, ["pub", "async", "bench", "--create", "--storage", "file", *common])
        fetching = ["fetch", "--acks", "explicit", "--batch", f"{batch}", "--clients", f"{consumers}", *common]
        return _rate(_run(programs, address, [*fetching, *(["--doubleack"] if double_ack else [])]))


def _run(programs: Nats, address: str, arguments: list[str]) -> str:
    command = [str(programs.tool), "--server", f"nats://{address}", "--no-context", "bench", "js", *arguments]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_SECONDS
    )
    if done.returncode:
        raise BenchFailed(f"nats bench js {arguments[0]}: {done.stdout[-500:]}")
    return done.stdout


def _rate(output: str) -> float:
    rates = _RATE.findall(output)
    if not rates:
        raise BenchFailed(f"nats bench has told no rate: {output[-500:]}")
    # The last line adds up all clients.
    return float(rates[-1].replace(",", ""))
