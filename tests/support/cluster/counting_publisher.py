"""A process that publishes the numbers 0, 1, 2, … one by one as far as it may, and shares how far it has got.

Not a thread: readers in the same interpreter would hold it up.
"""

import http.client
import itertools
import mmap
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.process.processes import child_environment, end_with_us, stop

_COUNT = struct.Struct("=q")
_SENT_AT, _ACKNOWLEDGED_AT, _ALLOWED_AT = (place * _COUNT.size for place in range(3))
_BYTES = 3 * _COUNT.size
_NO_MORE = -1
_KEYS = 13


class CountingPublisher:
    """The process as its parent sees it; `folder` is where the two share a few bytes."""

    def __init__(self, address: str, topic: str, folder: Path) -> None:
        self._path = folder / "counts"
        self._arguments = [address, topic, str(self._path)]

    def __enter__(self) -> Self:
        self._path.write_bytes(bytes(_BYTES))
        with self._path.open("r+b") as file:
            self._counts = mmap.mmap(file.fileno(), _BYTES)
        command = [sys.executable, "-m", "tests.support.cluster.counting_publisher", *self._arguments]
        self._process = subprocess.Popen(command, text=True, env=child_environment())
        end_with_us(self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stop(self._process)

    @property
    def running(self) -> bool:
        """Whether it is still publishing."""
        return self._process.poll() is None

    @property
    def sent(self) -> int:
        """The most messages that may be in the topic: counted before each is sent."""
        return int(_COUNT.unpack_from(self._counts, _SENT_AT)[0])

    @property
    def acknowledged(self) -> int:
        """The fewest messages in the topic: counted after each is acknowledged."""
        return int(_COUNT.unpack_from(self._counts, _ACKNOWLEDGED_AT)[0])

    def allow(self, messages: int) -> None:
        """Let it publish so many more than are acknowledged, then wait: it writes files faster than some read."""
        _COUNT.pack_into(self._counts, _ALLOWED_AT, self.acknowledged + messages)

    def finish(self) -> None:
        """Tell it to stop once the message it is at is acknowledged, and wait for that."""
        _COUNT.pack_into(self._counts, _ALLOWED_AT, _NO_MORE)
        assert self._process.wait(timeout=60) == 0


def publish(address: str, topic: str, path: Path) -> None:
    """Publish one by one. Almost every message is a file, since the next is sent after the last is acknowledged."""
    connection = http.client.HTTPConnection(address, timeout=30)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), _BYTES) as counts:
        for number in itertools.takewhile(lambda number: may_publish(number, counts), itertools.count()):
            _COUNT.pack_into(counts, _SENT_AT, number + 1)
            connection.request("POST", f"/v1/topics/{topic}/messages?key=k{number % _KEYS}", str(number))
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                sys.exit(f"message {number} was answered with {response.status}")
            _COUNT.pack_into(counts, _ACKNOWLEDGED_AT, number + 1)
    connection.close()


def may_publish(number: int, counts: mmap.mmap) -> bool:
    """Wait until that message may be published; whether it may ever."""
    while 0 <= (allowed := int(_COUNT.unpack_from(counts, _ALLOWED_AT)[0])) <= number:
        time.sleep(0.001)
    return allowed != _NO_MORE


if __name__ == "__main__":
    publish(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
