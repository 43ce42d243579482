"""NATS JetStream beside a broker: its server and its own bench, built from Go's module proxy.

JetStream acknowledges what it has written to its files, and syncs them every two minutes. Our local store syncs each
file before it acknowledges.
"""

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.harness.process_use import Use, used_by
from bench.harness.running import show_progress
from bench.harness.server_process import BenchFailed, scratch_folder, stop
from bench.peers.versions import FOLDER, versions

_READY = re.compile(r"Listening for client connections on (\S+)")
_RATE = re.compile(r"(?:aggregated stats|stats): ([\d,]+) msgs/sec")
RUN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Nats:
    """The programs."""

    server: Path
    tool: Path


def nats() -> Nats:
    """Build them if they are not there. Raises `BenchFailed` without Go, or if a build fails."""
    pinned = versions()["nats"]
    return Nats(server=_built("nats-server", pinned["server"]), tool=_built("nats", pinned["tool"]))


def _built(name: str, module: str) -> Path:
    folder = FOLDER / module.rpartition("@")[2] / name
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


@dataclass(frozen=True, slots=True)
class NatsCounted:
    """What its bench told, and what the server used meanwhile."""

    per_second: float
    messages: int
    use: Use

    @property
    def processor_us(self) -> float:
        """The server's processor time for a message."""
        return self.use.processor_seconds / self.messages * 1e6


@dataclass(frozen=True, slots=True)
class JetStream:
    """A running server."""

    programs: Nats
    address: str
    pid: int

    def bench(self, *arguments: str, messages: int, message_bytes: int) -> NatsCounted:
        """Run `nats bench js` with these arguments."""
        common = ["--size", f"{message_bytes}B", "--msgs", f"{messages}", "--no-progress"]
        with used_by(self.pid) as use:
            output = _run(self.programs, self.address, [*arguments, *common])
        return NatsCounted(rate_told(output), messages, use)

    def bench_for(self, seconds: float, *arguments: str, message_bytes: int, first: int) -> NatsCounted:
        """Run it with `first` messages, which warm up, and then with as many as take some `seconds`."""
        warm = self.bench(*arguments, messages=first, message_bytes=message_bytes)
        return self.bench(*arguments, messages=max(first, int(warm.per_second * seconds)), message_bytes=message_bytes)


@contextlib.contextmanager
def jet_stream(programs: Nats) -> Iterator[JetStream]:
    """Run a new server with its files in memory."""
    with scratch_folder() as folder, started_jet_stream(programs, folder) as server:
        yield server


@contextlib.contextmanager
def started_jet_stream(programs: Nats, folder: Path) -> Iterator[JetStream]:
    """Run the server of a folder. It listens once it has read what is there."""
    command = [str(programs.server), "-js", "-sd", str(folder / "nats"), "-a", "127.0.0.1", "-p", "-1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield JetStream(programs, _address(process.stderr), process.pid)
    finally:
        stop(process)
        process.stderr.close()


def _address(output: IO[str]) -> str:
    for line in output:
        if found := _READY.search(line):
            # Drain its further output, so that it cannot fill the pipe.
            threading.Thread(target=output.read, daemon=True).start()
            return found[1]
    raise BenchFailed("nats-server ended before it listened")


def claimed_per_second(
    programs: Nats, *, messages: int, message_bytes: int, consumers: int, batch: int, double_ack: bool
) -> float:
    """How many messages a second a work queue gives to its consumers, who ack each of them.

    With `double_ack` a consumer waits for the answer to each ack, as ours do to one ack of a batch.
    """
    sizes = {"messages": messages, "message_bytes": message_bytes}
    with jet_stream(programs) as server:
        server.bench("pub", "async", "bench", "--create", "--storage", "file", **sizes)
        fetching = ["fetch", "--acks", "explicit", "--batch", f"{batch}", "--clients", f"{consumers}"]
        return server.bench(*fetching, *(["--doubleack"] if double_ack else []), **sizes).per_second


def _run(programs: Nats, address: str, arguments: list[str]) -> str:
    command = [str(programs.tool), "--server", f"nats://{address}", "--no-context", "bench", "js", *arguments]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_SECONDS
    )
    if done.returncode:
        raise BenchFailed(f"nats bench js {arguments[0]}: {done.stdout[-500:]}")
    return done.stdout


def rate_told(output: str) -> float:
    """The messages a second that `nats bench` tells: its last line adds up all clients."""
    rates = _RATE.findall(output)
    if not rates:
        raise BenchFailed(f"nats bench has told no rate: {output[-500:]}")
    return float(rates[-1].replace(",", ""))
