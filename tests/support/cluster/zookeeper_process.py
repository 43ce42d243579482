"""A real ZooKeeper for tests, which can be stopped, killed and paused, and comes back with its port and data."""

import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from filer.clock import SystemClock
from mq.local.zookeeper import ZooKeeperNode, zookeeper_nodes

START_SECONDS = 60.0
STOP_SECONDS = 20.0
MOST_PORTS = 3
PORT_TAKEN = "Address already in use"


class ZooKeeperProcess:
    """One ZooKeeper. Entering the context starts it, leaving it kills it.

    Start it on a thread that lives as long as it shall live: on Linux it ends with the thread that started it.
    """

    def __init__(self, folder: Path, *, session_timeout_seconds: float) -> None:
        self._folder, self._session_timeout_seconds = folder, session_timeout_seconds
        self._node = self._new_node()

    def _new_node(self) -> ZooKeeperNode:
        (node,) = zookeeper_nodes(self._folder, 1, SystemClock(), session_timeout_seconds=self._session_timeout_seconds)
        return node

    @property
    def port(self) -> int:
        """Its port on 127.0.0.1, the same after each restart."""
        return self._node.port

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return self._node.address

    def __enter__(self) -> Self:
        try:
            self._start_on_a_free_port()
        except BaseException:
            self.kill()
            raise
        return self

    def _start_on_a_free_port(self) -> None:
        """A port that was free may be another program's by the time that Java asks for it: then on another one."""
        for _ in range(MOST_PORTS - 1):
            try:
                return self.start()
            except TimeoutError as error:
                if PORT_TAKEN not in str(error):
                    raise
                self.kill()
                self._node = self._new_node()
        self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait as `wait_until_serving` does unless told otherwise."""
        self._node.start()
        if wait:
            self.wait_until_serving()

    def wait_until_serving(self) -> None:
        """Return when clients get answers. Raises `TimeoutError` with the end of its output."""
        deadline = time.monotonic() + START_SECONDS
        while not self._node.serves():
            if not self._node.process.running or time.monotonic() > deadline:
                raise TimeoutError(f"ZooKeeper does not serve:\n{self._node.process.log_end()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """SIGTERM, and wait until it is gone."""
        self._node.process.send(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self._node.process.running and time.monotonic() < deadline:
            time.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone, if it is running."""
        self._node.process.kill()

    def pause(self) -> None:
        """SIGSTOP: it stops and keeps its connections."""
        self._node.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._node.process.send(signal.SIGCONT)
