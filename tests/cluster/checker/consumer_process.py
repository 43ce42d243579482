"""A consumer as a process, to be killed at any moment: `python -m tests.cluster.checker.consumer_process` says how.

It reads a topic with the Python client, from its oldest message or, where the file has a marker, from the last one. A
message stands in the file before the next one is taken, and now and then the marker behind it, as a consumer would
save it: after a SIGKILL the next life is given again what came behind that marker, and nothing else.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from braidmq import AsyncClient, DataUnreadable, Message, NoConnection
from tests.cluster.checker.consumer_log import Began, ConsumerLog, Line, Saved, written
from tests.cluster.checker.history import Found

SAVE_EVERY = 7
AGAIN_SECONDS = 0.2
USAGE = "usage: python -m tests.cluster.checker.consumer_process TOPIC FILE URL [URL ...]"


class Scribe:
    """Goes on with a consumer's file behind its last whole line. `marker` is the last one saved, if any."""

    def __init__(self, path: Path) -> None:
        log = ConsumerLog(path)
        lines = log.read_on()
        self._count = sum(isinstance(line, Found) for line in lines)
        saved = [line for line in lines if isinstance(line, Saved)]
        self.marker = saved[-1].marker if saved else None
        # Unbuffered: what was written outlives this process, however it ends.
        self._file = path.open("ab", buffering=0)
        self._file.truncate(log.read_bytes)
        self._write(Began(saved[-1].behind if saved else 0, time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def take(self, message: Message) -> None:
        """Write a message down, and every so often the marker behind it.

        Stopped between the two, it is given the message once more in its next life.
        """
        self._write(Found(message.segment, message.offset, message.key, message.value, time.monotonic()))
        self._count += 1
        if self._count % SAVE_EVERY == 0 and message.marker is not None:
            self._write(Saved(self._count, message.marker))

    def _write(self, line: Line) -> None:
        self._file.write(written(line))


async def consume(topic: str, path: Path, urls: Sequence[str]) -> None:
    """Read until killed. It begins another life, behind its marker, where it cannot go on for now.

    So it does where it is told that messages cannot be read, and where there is no broker: the only one may have been
    killed a moment ago.
    """
    async with AsyncClient(urls) as client:
        while await _begins_again(client, topic, path):
            await asyncio.sleep(AGAIN_SECONDS)


async def _begins_again(client: AsyncClient, topic: str, path: Path) -> bool:
    """Read until it cannot go on for now. False if the subscription ends otherwise."""
    with Scribe(path) as scribe:
        start = "earliest" if scribe.marker is None else None
        try:
            async for message in client.subscribe(topic, from_=start, marker=scribe.marker):
                scribe.take(message)
        except (DataUnreadable, NoConnection):
            return True
    return False


def main(arguments: Sequence[str]) -> int:
    """Read until killed. Returns 2 for wrong arguments."""
    if len(arguments) < 3:
        print(USAGE, file=sys.stderr)
        return 2
    topic, path, *urls = arguments
    asyncio.run(consume(topic, Path(path), urls))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
