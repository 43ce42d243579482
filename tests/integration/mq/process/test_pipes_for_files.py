"""A pipe or a folder where a file of keys is expected is refused in one line, at once."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from filer.clock import SystemClock
from filer.errors import InvalidConfig
from filer.stores.memory_store import MemoryStore
from mq.base.settings import BrokerSettings
from mq.peer_keys.kept_keys import kept_keys
from mq.process.clustered import zookeeper_access
from mq.security.token_access import TokenAccess
from mq.tls.contexts import TlsFiles, read_contexts


def tokens(**paths: Path) -> None:
    """Read the files as a broker does at its start."""
    settings = BrokerSettings(authorizer="tokens", **paths)
    access = TokenAccess(settings, SystemClock(), MemoryStore(), lambda: None)
    asyncio.run(access.open())


READERS: dict[str, Callable[[Path], object]] = {
    "--peer-keys": lambda path: kept_keys(path, None, SystemClock()),
    "--zookeeper-auth": lambda path: zookeeper_access(BrokerSettings(zookeeper_auth=path), {}),
    "--token-keys": lambda path: tokens(token_keys=path),
    "--static-tokens": lambda path: tokens(static_tokens=path),
    "--tls-ca": lambda path: read_contexts(TlsFiles(ca=path)),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("flag", READERS)
def test_a_pipe_or_a_folder_is_refused_at_once(flag: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, why in ((pipe, "it is no regular file"), (Path("/dev/null"), "no regular file"), (tmp_path, "")):
        with pytest.raises(InvalidConfig) as refused:
            READERS[flag](path)
        told = str(refused.value)
        assert str(path) in told and flag in told and "\n" not in told
        assert why in told, told
