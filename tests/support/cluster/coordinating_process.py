"""The coordinator of a broker in a separate process, which tests kill or stop.

Prints a line for each sample of its `leads()`: the clock (which all processes of a machine share), and yes or no.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filer.clock import SystemClock
from leader.membership.coordinator import BrokerInfo
from leader.membership.zookeeper_coordinator import ZooKeeperCoordinator
from tests.support.process.processes import child_environment

SAMPLE_SECONDS = 0.002
START_SECONDS = 30.0


@dataclass(frozen=True)
class Reign:
    """The time from the first to the last of consecutive samples in which `leads()` was true."""

    start: float
    end: float


class Samples:
    """The values of `leads()` over time."""

    def __init__(self) -> None:
        self._taken: list[tuple[float, bool]] = []

    def add(self, seconds: float, leads: bool) -> None:
        self._taken.append((seconds, leads))

    def reigns(self) -> list[Reign]:
        reigns: list[Reign] = []
        led = False
        for seconds, leads in self._taken:
            if leads:
                start = reigns.pop().start if led else seconds
                reigns.append(Reign(start, seconds))
            led = leads
        return reigns


def overlaps(one: Sequence[Reign], other: Sequence[Reign]) -> list[tuple[Reign, Reign]]:
    return [(a, b) for a in one for b in other if a.start <= b.end and b.start <= a.end]


async def sample(coordinator: ZooKeeperCoordinator, samples: Samples) -> None:
    """Run until cancelled."""
    clock = SystemClock()
    while True:
        samples.add(clock.monotonic_seconds(), coordinator.leads())
        await asyncio.sleep(SAMPLE_SECONDS)


class CoordinatingProcess:
    """The process; it has joined once this is made. Its samples go to a file: a full pipe would hold it up."""

    def __init__(self, hosts: str, cluster: str, broker: str, session_seconds: float) -> None:
        command = [sys.executable, "-m", "tests.support.cluster.coordinating_process", hosts, cluster, broker]
        self._output, path = tempfile.mkstemp(prefix="braidmq-samples-")
        Path(path).unlink()
        self.process = subprocess.Popen(
            [*command, str(session_seconds)], stdout=self._output, text=True, env=child_environment()
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._lines():
            assert self.process.poll() is None and time.monotonic() < deadline, "it has not joined"
            time.sleep(0.01)

    def end(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        os.close(self._output)

    def samples(self) -> Samples:
        """The samples so far."""
        samples = Samples()
        for line in self._lines()[:-1]:  # the last may be incomplete
            seconds, _, leads = line.partition(" ")
            samples.add(float(seconds), leads == "yes")
        return samples

    def _lines(self) -> list[str]:
        # By an offset of its own: the process writes where the shared one is.
        size = os.fstat(self._output).st_size
        return os.pread(self._output, size, 0).decode().splitlines()


async def main(hosts: str, cluster: str, broker: str, session_seconds: str) -> None:
    clock = SystemClock()
    coordinator = ZooKeeperCoordinator(hosts, cluster, clock, session_timeout_seconds=float(session_seconds))
    await coordinator.join(BrokerInfo(broker, "http://127.0.0.1:1", "", "1"))
    while True:
        now = clock.monotonic_seconds()
        print(now, "yes" if coordinator.leads() else "no", flush=True)
        await asyncio.sleep(SAMPLE_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
