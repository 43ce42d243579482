"""Workers of all kinds on a queue group with `order: key`, which are killed, and write down their runs."""

import asyncio
import itertools
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.cluster.group_storms.asking import Asking
from tests.cluster.group_storms.verdict import Verdict
from tests.cluster.group_storms.worker_runs import Line, Runs, command, done_in, lines_of
from tests.cluster.group_storms.worker_verdict import around, judge
from tests.support.broker.broker_process import broker_environment
from tests.support.cluster.cluster import Cluster
from tests.support.process.processes import end_with_us

KEYS = 1000
KINDS = ("threads", "tasks", "commands")
LEASE_SECONDS = 4
BETWEEN_KILLS_SECONDS = (1.0, 4.0)
MOST_WAITING = 3 * KEYS
LOOK_SECONDS = 0.2
END_SECONDS, STOP_SECONDS = 180.0, 60.0
BRIEFLY_AWAY = "--timeout=10m"


class WorkerLoad:
    """A worker of each kind on a topic with a group `g`: `threads` and `tasks` of Python, and `commands` of `mq work`.

    Messages are published a wave at a time, one for each key. One worker after the other is killed, and started anew.
    """

    consumer_processes: Sequence[Any] = ()

    def __init__(self, urls: Callable[[], Sequence[str]], topic: str, folder: Path, *, seed: int) -> None:
        self.topic, self.topics = topic, (topic,)
        self._urls, self._folder = urls, folder
        self._chance = random.Random(seed)
        self._asking = Asking(urls, self._chance)
        self._group = f"/v1/topics/{topic}/groups/g"
        self._path = folder / f"{topic}.runs"
        self._names = itertools.count()
        self._workers: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._wrong: list[str] = []
        self._waves = 0
        self._goes_on = True

    async def create(self, cluster: Cluster, **settings: Any) -> None:
        """Make the topic."""
        await cluster.create_topic(self.topic, **settings)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A context in which they run. At its end all is done. Raises `TimeoutError` if it does not get so."""
        settings = {"order": "key", "lease_seconds": LEASE_SECONDS, "backoff_seconds": [0.1], "max_deliveries": 1000}
        (await self._asking.until_answered("PUT", self._group, json=settings)).raise_for_status()
        self._path.touch()
        await self._publish_wave()
        for kind in KINDS:
            self._start(kind)
        tasks = [asyncio.create_task(work) for work in (self._publish(), self._kill())]
        try:
            yield
            self._goes_on = False
            await asyncio.gather(*tasks)
            await self._until_done()
            await self._stop_all()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for _, process in self._workers.values():
                process.kill()
                process.wait()

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._asking.close()

    async def each_acknowledged(self, count: int, *, timeout_seconds: float = 60.0) -> None:
        """Wait until so many messages more were done by anybody."""
        wanted = done_in(self._lines()) + count
        async with asyncio.timeout(timeout_seconds):
            while done_in(self._lines()) < wanted:
                await asyncio.sleep(LOOK_SECONDS)

    def struck(self, name: str, began_at: float) -> None:
        """What was broken is no matter to the order of keys."""

    async def verdict(self) -> Verdict:
        """Whether all this may be."""
        found = judge(self._lines(), each=self._waves, keys=KEYS)
        return Verdict([*self._wrong, *found.complaints], found.figures)

    def around(self, complaint: str) -> list[str]:
        """Everything that was seen of what a complaint names."""
        return around(self._lines(), complaint)

    def _lines(self) -> list[Line]:
        # A line that is being written has no end yet.
        return lines_of(self._path.read_text().rpartition("\n")[0])

    async def _publish(self) -> None:
        while self._goes_on:
            if self._waves * KEYS - done_in(self._lines()) < MOST_WAITING:
                await self._publish_wave()
            await asyncio.sleep(LOOK_SECONDS)

    async def _publish_wave(self) -> None:
        """A repeated wave may be stored twice: the next one is behind both."""
        messages = [{"key": f"k{key}", "value": f"k{key} {self._waves}"} for key in range(KEYS)]
        target = f"/v1/topics/{self.topic}/messages"
        answer = await self._asking.until_answered("POST", target, json={"messages": messages})
        answer.raise_for_status()
        self._waves += 1

    def _start(self, kind: str) -> None:
        name, urls = f"{kind}-{next(self._names)}", ",".join(self._urls())
        if kind == "commands":
            options = ["--group", "g", "--concurrency", "3", BRIEFLY_AWAY, "--url", urls]
            arguments = ["mq.cli.main", "work", self.topic, *options, "--", *command(self._path, name)]
        else:
            arguments = ["tests.cluster.group_storms.worker_process", kind, name, str(self._path), self.topic, urls]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=broker_environment({}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end_with_us(process.pid)
        self._workers[name] = (kind, process)

    async def _kill(self) -> None:
        """Kill one after the other, and start another of its kind."""
        while self._goes_on:
            await asyncio.sleep(self._chance.uniform(*BETWEEN_KILLS_SECONDS))
            name = self._chance.choice(list(self._workers))
            kind, process = self._workers.pop(name)
            if process.poll() is not None:
                self._wrong.append(f"{name} has ended with exit code {process.returncode}: {self._log(name)}")
            process.kill()
            await asyncio.to_thread(process.wait)
            runs = Runs(self._path, name)
            runs.dead()
            runs.close()
            self._start(kind)

    async def _until_done(self) -> None:
        """Wait until nothing is left in the group."""
        async with asyncio.timeout(END_SECONDS):
            while True:
                told = (await self._asking.until_answered("GET", self._group)).json()
                if told["lag"]["messages"] + told.get("delayed", 0) == 0:
                    return
                await asyncio.sleep(LOOK_SECONDS)

    async def _stop_all(self) -> None:
        for _, process in self._workers.values():
            process.terminate()
        for name, (_, process) in self._workers.items():
            code = await asyncio.to_thread(process.wait, STOP_SECONDS)
            if code != 0:
                self._wrong.append(f"{name} has ended with exit code {code}: {self._log(name)}")

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()[-500:]
