"""The harness itself: a ZooKeeper that comes back, lines that are cut, and nothing left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.zookeeper_process import ZooKeeperProcess
from tests.support.net.tcp_proxy import HOST, TcpProxy
from tests.support.process.processes import child_environment, stop
from tests.support.store.shared_store import SharedDirectory

SECONDS = 30.0


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    with ZooKeeperProcess(tmp_path, session_timeout_seconds=4.0) as zookeeper:
        yield zookeeper


@contextlib.contextmanager
def client(address: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=address, timeout=4.0)
    try:
        client.start(timeout=SECONDS)
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("end", [ZooKeeperProcess.stop, ZooKeeperProcess.kill])
def test_a_zookeeper_comes_back_with_its_port_and_data(zookeeper: ZooKeeperProcess, end: object) -> None:
    with client(zookeeper.address) as before:
        before.create("/kept", b"data")
    assert callable(end)
    end(zookeeper)
    zookeeper.start()
    with client(zookeeper.address) as after:
        assert after.get("/kept")[0] == b"data"


def test_a_zookeeper_that_stands_still(zookeeper: ZooKeeperProcess) -> None:
    with client(zookeeper.address) as connected:
        zookeeper.pause()
        with pytest.raises(connected.handler.timeout_exception):
            # Its threads stop one by one: on a busy machine some still answer.
            while True:
                connected.exists_async("/").get(timeout=0.5)
        zookeeper.resume()
        connected.retry(connected.exists, "/")


def test_a_zookeeper_behind_a_proxy(zookeeper: ZooKeeperProcess) -> None:
    with TcpProxy(HOST, zookeeper.port) as proxy, client(proxy.address) as connected:
        assert connected.exists("/")
        proxy.cut()
        deadline = time.monotonic() + SECONDS
        while connected.connected:
            assert time.monotonic() < deadline, "it never noticed"
            time.sleep(0.01)
        proxy.heal()
        assert connected.retry(connected.exists, "/")


def test_a_line_that_is_not_there_cannot_be_cut(tmp_path: Path) -> None:
    store = SharedDirectory(tmp_path / "store")
    with (
        Cluster(tmp_path, store, brokers=1, zookeeper=False) as cluster,
        pytest.raises(ValueError, match="b0 has no line to the store"),
    ):
        cluster.cut_from_store("b0")


def test_several_brokers_need_zookeeper(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a cluster of its own"):
        Cluster(tmp_path, SharedDirectory(tmp_path / "store"), brokers=2, zookeeper=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Not even a broker that stands still."""
    with idle_cluster(tmp_path) as process:
        assert process.stdout is not None
        assert len(process.stdout.readline().split()) == 2
        process.send_signal(number)
        assert process.wait(SECONDS) != 0
        _wait_for(lambda: (_group(process.pid), _naming(str(tmp_path))) == ([], []))


def test_an_interrupt_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    with idle_cluster(tmp_path) as process:
        # Before, it starts ZooKeeper: Python drops an interrupt that meets its own hooks at a fork.
        _wait_for(lambda: _fork_server_of(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) != 0
        _wait_for(lambda: (_group(process.pid), _naming(str(tmp_path))) == ([], []))


@contextlib.contextmanager
def idle_cluster(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A run of its own. Its brokers are in its process group; ZooKeeper, in one of its own, names the folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.cluster.idle_cluster", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=child_environment(),
        process_group=0,
    )
    try:
        assert process.stdout is not None
        with process.stdout:
            yield process
    finally:
        stop(process)


def _wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def _processes() -> Iterator[tuple[int, int, str]]:
    """Every process of this machine: its id, its group, its command line."""
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):
                yield int(path.name), os.getpgid(int(path.name)), (path / "cmdline").read_text().replace("\0", " ")


def _group(group: int) -> list[int]:
    return [pid for pid, of, _ in _processes() if of == group]


def _fork_server_of(group: int) -> list[int]:
    return [pid for pid, of, command in _processes() if of == group and "fork_server" in command]


def _naming(text: str) -> list[int]:
    return [pid for pid, _, command in _processes() if text in command and pid != os.getpid()]
