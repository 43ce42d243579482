"""Imports Python programs once and forks a process for each start: `python -m tests.support.process.fork_server`.

It answers to `tests.support.process.forked_process`, through a socket whose descriptor is its argument, and ends with
it. A request is a line of JSON with four descriptors: the stdin, stdout and stderr of the program, and a socket that
gets the exit code when the program has ended. The answer is its process id.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from typing import Self

# Process ids and exit codes.
NUMBER = struct.Struct("!q")
_RECEIVED_BYTES = 65536
_BROKER = (
    "mq.cli.command_line",
    "mq.cli.server.serve",
    "mq.process.server",
    "mq.cli.server.start_message",
    "filer.stores.s3.s3_store",
    "leader.membership.zookeeper_coordinator",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.lifespan.off",
    "pydantic.v1",
    "tests.support.broker.rehearsal",
)
_SPARK = ("pyspark.worker", "pandas", "braidmq.spark", "pipeline.tasks")
# What programs import when they run.
_LATE_IMPORTS = {
    "mq.cli.main": _BROKER,
    "pyspark.daemon": _SPARK,
    "tests.support.broker.deadly_broker": _BROKER,
    "tests.support.broker.few_files": _BROKER,
    "tests.support.broker.steered_broker": _BROKER,
    "tests.support.store.s3_server": ("moto.moto_server.werkzeug_app", "moto.s3.responses", "waitress.server"),
}


@dataclass(frozen=True, slots=True)
class Program:
    """A module to be run as `python -m` does, and where."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str

    def to_line(self) -> bytes:
        """As a request."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """From a request."""
        return cls(**json.loads(line))

    def load(self) -> None:
        """Import what the program needs, for all later processes. Errors appear when it runs."""
        with contextlib.suppress(Exception):
            for name in (self.module, *_LATE_IMPORTS.get(self.module, ())):
                importlib.import_module(name)
        # Collecting garbage in a child would copy the memory that it shares with this one.
        gc.freeze()

    def run(self) -> None:
        """Run this program in this process."""
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.argv[1:] = self.arguments
        sys.modules.pop(self.module, None)
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)


def serve(control: socket.socket) -> Program | None:
    """Fork for each request. Returns the program in the new process, and None in this one after the last request."""
    running: dict[int, socket.socket] = {}
    with control, _ends_of_children() as ended:
        while True:
            ready = wait([control, ended])
            if ended in ready:
                ended.recv(_RECEIVED_BYTES)
                _report_ends(running)
            if control not in ready:
                continue
            line, descriptors = receive(control)
            if not line:
                return None
            program = Program.from_line(line)
            program.load()
            status = socket.socket(fileno=descriptors.pop())
            if pid := os.fork():
                for descriptor in descriptors:
                    os.close(descriptor)
                running[pid] = status
                control.sendall(NUMBER.pack(pid))
                continue
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            for each in (status, *running.values()):
                each.close()
            return program


@contextlib.contextmanager
def _ends_of_children() -> Iterator[socket.socket]:
    """What can be read when a child may have ended. Afterwards signals are as they are in a new process."""
    # Whoever interrupts a test run interrupts its processes too, this one by going away.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _report_ends(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as asker, contextlib.suppress(BrokenPipeError):
            asker.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """A request; an empty one where nobody asks any more. The next is not sent before this one is answered."""
    line, descriptors, _, _ = socket.recv_fds(control, _RECEIVED_BYTES, 4)
    while line and not line.endswith(b"\n"):
        line += control.recv(_RECEIVED_BYTES)
    return line, descriptors


def main() -> None:
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    if program is not None:
        program.run()


if __name__ == "__main__":
    main()
