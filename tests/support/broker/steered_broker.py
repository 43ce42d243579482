"""`mq` that a test steers while it runs: `python -m tests.support.broker.steered_broker serve ...`.

STEERED_BY names a file, which `steer` writes. It says how far the broker's wall clock is ahead of this machine's; its
monotonic clock goes on as it is, as in a real step. And it says whether the broker is nameless: then its calls do not
say who calls, as those of older brokers do not, and nobody hears that it lives.
"""

import mmap
import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from filer.clock import SystemClock
from mq.cli.main import main
from mq.peers.calls import BROKER_HEADER
from mq.peers.http_peers import HttpPeers, TlsOf
from mq.peers.transport import PeerAnswer

STEERED_BY = "STEERED_BY"
_FORM = struct.Struct("<d?")


class Steering(NamedTuple):
    """What a broker is told."""

    clock_ahead_seconds: float = 0.0
    nameless: bool = False


class Steered:
    """Reads the file of this process."""

    def __init__(self) -> None:
        with Path(os.environ[STEERED_BY]).open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), _FORM.size, access=mmap.ACCESS_READ)

    def now(self) -> Steering:
        """What it is told now."""
        return Steering(*_FORM.unpack_from(self._bytes))


class SteppedClock(SystemClock):
    """The clock of this machine, and the step in a file."""

    def __init__(self) -> None:
        super().__init__()
        self._steered = Steered()

    def now_us(self) -> int:
        """As the machine's, stepped."""
        return super().now_us() + int(self._steered.now().clock_ahead_seconds * 1e6)


class SometimesNamelessPeers(HttpPeers):
    """Leaves out who calls while the file says so."""

    def __init__(self, *limits: int, tls_of: TlsOf) -> None:
        super().__init__(*limits, tls_of=tls_of)
        self._steered = Steered()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        """As `PeerTransport.send`."""
        if self._steered.now().nameless:
            headers = {name: value for name, value in headers.items() if name != BROKER_HEADER}
        return await super().send(method, url, headers, body, timeout_seconds=timeout_seconds)


def steer(path: Path, steering: Steering) -> None:
    """Tell the broker that reads this file."""
    if not path.exists():
        path.write_bytes(_FORM.pack(*steering))
        return
    # In place: the broker has mapped this very file.
    with path.open("r+b") as file:
        file.write(_FORM.pack(*steering))


if __name__ == "__main__":
    with (
        mock.patch("mq.process.server.SystemClock", SteppedClock),
        mock.patch("mq.broker.HttpPeers", SometimesNamelessPeers),
    ):
        sys.exit(main())
