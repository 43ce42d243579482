"""The ZooKeeper of tests."""

import socket
from pathlib import Path

from tests.support.cluster.zookeeper_process import ZooKeeperProcess


def test_a_port_that_another_program_has_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    zookeeper = ZooKeeperProcess(tmp_path, session_timeout_seconds=4.0)
    with socket.create_server(("127.0.0.1", zookeeper.port)) as other, zookeeper:
        assert zookeeper.port != other.getsockname()[1]
