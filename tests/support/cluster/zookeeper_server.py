"""A real ZooKeeper for tests, alone or three of them, on ports and with data that outlive a restart.

    with ZooKeeperServer(tmp_path) as zookeeper:
        KazooClient(zookeeper.hosts)
        zookeeper.stop()        # SIGSTOP: connections stay, nobody answers
        zookeeper.cont()
        zookeeper.restart()     # SIGKILL and start again; forget=True takes its data away

It ends with the thread that started it: start it on one that stays.
"""

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from filer.clock import SystemClock
from mq.local.zookeeper import ZooKeeperNode, zookeeper_nodes

START_SECONDS = 60.0
# The tick, a tenth of this, is what expiry is rounded up to.
SESSION_SECONDS = 2.0


class ZooKeeperServer:
    """`count` ZooKeepers, kept in `folder`. Entering the context starts them, leaving it kills them."""

    def __init__(self, folder: Path, *, count: int = 1) -> None:
        self.nodes = zookeeper_nodes(folder, count, SystemClock(), session_timeout_seconds=SESSION_SECONDS)
        self.hosts = ",".join(node.address for node in self.nodes)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start those that are not running, and wait until all serve."""
        for node in self.nodes:
            if not node.process.running:
                node.start()
        self.wait_serving(self.nodes)

    def wait_serving(self, nodes: Sequence[ZooKeeperNode]) -> None:
        """Wait until clients get answers from each of these."""
        deadline = time.monotonic() + START_SECONDS
        for node in nodes:
            while not node.serves():
                assert node.process.running, f"{node.process.name} ended:\n{node.process.log_end()}"
                assert time.monotonic() < deadline, f"{node.process.name} does not serve:\n{node.process.log_end()}"
                time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL to all, and wait until they are gone."""
        for node in self.nodes:
            node.process.kill()

    def stop(self) -> None:
        """SIGSTOP to all."""
        for node in self.nodes:
            node.process.send(signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT to all."""
        for node in self.nodes:
            node.process.send(signal.SIGCONT)

    def restart(self, *, forget: bool = False) -> None:
        """SIGKILL and start again, with their data or, with `forget`, without it."""
        self.kill()
        if forget:
            for node in self.nodes:
                node.forget()
        self.start()
