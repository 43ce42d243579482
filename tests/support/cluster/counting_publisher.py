"""A process that publishes the numbers 0, 1, 2, … one by one, and shares how far it has got.

Not a thread: readers in the same interpreter would hold it up.
"""

import http.client
import mmap
import struct
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.process.processes import child_environment, end_with_us, stop

_COUNT = struct.Struct("=q")
_BYTES = 2 * _COUNT.size
_KEYS = 13


class CountingPublisher:
    """The process as its parent sees it; `folder` is where the two share a few bytes."""

    def __init__(self, address: str, topic: str, messages: int, folder: Path) -> None:
        self._path = folder / "counts"
        self._arguments = [address, topic, str(messages), str(self._path)]

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
        return int(_COUNT.unpack_from(self._counts, 0)[0])

    @property
    def acknowledged(self) -> int:
        """The fewest messages in the topic: counted after each is acknowledged."""
        return int(_COUNT.unpack_from(self._counts, _COUNT.size)[0])


def publish(address: str, topic: str, messages: int, path: Path) -> None:
    """Publish one by one. Almost every message is a file, since the next is sent after the last is acknowledged."""
    connection = http.client.HTTPConnection(address, timeout=30)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), _BYTES) as counts:
        for number in range(messages):
            _COUNT.pack_into(counts, 0, number + 1)
            connection.request("POST", f"/v1/topics/{topic}/messages?key=k{number % _KEYS}", str(number))
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                sys.exit(f"message {number} was answered with {response.status}")
            _COUNT.pack_into(counts, _COUNT.size, number + 1)
    connection.close()


if __name__ == "__main__":
    publish(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
