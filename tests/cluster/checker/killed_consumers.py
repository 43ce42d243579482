"""Consumers as processes: tests kill them at any time, and they are restarted where they stopped."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from tests.cluster.checker.consumer_log import Began, ConsumerLog
from tests.cluster.checker.history import Found, Reader, Visit
from tests.support.process.forked_process import ForkedProcess
from tests.support.process.processes import child_environment, end_with_us

LOOK_SECONDS = 0.05
LOST_SECONDS = 10.0
SIGKILLED = -9


@dataclass(frozen=True)
class ProcessConsumer:
    """One that reads a topic from its oldest message on, and keeps what it was given in a file in `folder`."""

    name: str
    topic: str
    folder: Path


class KilledConsumer:
    """Keeps a consumer process running, and writes down what it writes down: each of its lives is a visit.

    `kill` ends a life; the next one begins at the brokers that run by then. So it does where all brokers that it was
    told of are gone and it gets nothing more: those that the client learns of are replaced too, faster than it looks.
    In a real cluster one of the addresses that a client is given stays.
    """

    def __init__(self, consumer: ProcessConsumer, now: Callable[[], float]) -> None:
        self._consumer, self._now = consumer, now
        self._log = ConsumerLog(consumer.folder / f"{consumer.name}.jsonl")
        self._errors = consumer.folder / f"{consumer.name}.err"
        self._process: ForkedProcess | None = None
        self._reached: dict[int, int] = {}
        self._saved = False
        self._given: set[str] = set()
        self._news_seconds = 0.0
        self.record = Reader(consumer.name, consumer.topic, "stream")

    @property
    def has_ended(self) -> bool:
        """Whether its process has started and ended."""
        return self._process is not None and self._process.poll() is not None

    @property
    def has_got_on(self) -> bool:
        """Whether its next life would begin further on than this one did: it has saved a marker."""
        return self._saved

    def kill(self) -> bool:
        """SIGKILL at any point. Returns whether it was running."""
        if self._process is None or self.has_ended:
            return False
        self._process.kill()
        return True

    def hurry(self) -> None:
        """It always does."""

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Whether it was given everything before these end offsets."""
        return all(self._reached.get(segment, 0) >= end for segment, end in ends.items())

    async def follow(self, client: httpx.AsyncClient, urls: Sequence[str]) -> None:
        """Restart it until cancelled. Raises `AssertionError` if it ends by itself."""
        try:
            while True:
                self._process = self._start(urls)
                while not self.has_ended:
                    self._catch_up()
                    if self._is_lost(urls):
                        self.kill()
                    await asyncio.sleep(LOOK_SECONDS)
                self._check_killed(self._process)
                self._catch_up()
                self._saved = False
        finally:
            if self._process is not None:
                self.kill()
                self._process.wait()
                self._catch_up()
                self._check_killed(self._process)

    def _is_lost(self, urls: Sequence[str]) -> bool:
        return self._given.isdisjoint(urls) and self._now() - self._news_seconds > LOST_SECONDS

    def _check_killed(self, process: ForkedProcess) -> None:
        code = process.returncode
        assert code == SIGKILLED, f"{self._consumer.name} ended with {code}: {self._errors.read_text()}"

    def _start(self, urls: Sequence[str]) -> ForkedProcess:
        self._consumer.folder.mkdir(parents=True, exist_ok=True)
        module = "tests.cluster.checker.consumer_process"
        self._given, self._news_seconds = set(urls), self._now()
        arguments = [self._consumer.topic, str(self._log.path), *urls]
        with self._errors.open("wb") as errors:
            process = ForkedProcess(module, arguments, env=child_environment(), stderr=errors)
        # It prints nothing.
        process.stdout.close()
        end_with_us(process.pid)
        return process

    def _catch_up(self) -> None:
        """Read what it has written since the last call."""
        ahead_seconds = time.monotonic() - self._now()
        for line in self._log.read_on():
            if isinstance(line, Began):
                # No news: it begins again for as long as there is no broker.
                self._begin(line.behind, line.at_seconds - ahead_seconds)
                continue
            self._news_seconds = self._now()
            if isinstance(line, Found):
                self._find(replace(line, at_seconds=line.at_seconds - ahead_seconds))
            else:
                self._saved = True

    def _begin(self, behind: int, at_seconds: float) -> None:
        self.record.joined_seconds = self.record.joined_seconds or at_seconds
        self.record.visits.append(Visit(self._consumer.name, behind, at_seconds, end="still reading"))

    def _find(self, message: Found) -> None:
        visit = self.record.visits[-1]
        visit.found.append(message)
        visit.ended_seconds = message.at_seconds
        self._reached[message.segment] = max(message.offset + 1, self._reached.get(message.segment, 0))
