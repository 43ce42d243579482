"""Files of TLS to ZooKeeper that are none: told at once, whatever they are."""

import os
from pathlib import Path

import pytest

from filer.errors import InvalidConfig
from leader.membership.zookeeper_access import ZooKeeperTls
from tests.support.net.authority import Authority


@pytest.mark.timeout(20)
@pytest.mark.parametrize("setting", ["ca", "cert", "key"])
def test_a_pipe_is_refused_and_not_waited_for(setting: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("broker")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    files = {"ca": authority.ca, "cert": cert, "key": key}
    ZooKeeperTls(**files).context()
    with pytest.raises(InvalidConfig, match=rf"--zookeeper-{setting}.*it is no regular file"):
        ZooKeeperTls(**{**files, setting: pipe}).context()
