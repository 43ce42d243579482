"""Who looks at alerts as they fire, by their pages."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.broker.broker_process import broker_environment
from tests.support.monitoring.chart_queries import page_commands, page_queries
from tests.support.monitoring.prometheus import PATIENCE_SECONDS, Prometheus
from tests.support.monitoring.short_rules import of_this_release

COMMAND_SECONDS = 120
# What a command says of itself: `mq doctor` and `mq verify` found something, `mq` reached nobody; curl reached nobody.
_OUTCOMES = (0, 1, 7)


class Desk:
    """Waits for alerts, and does what their pages say. `environment` is for the commands of the pages."""

    def __init__(self, prometheus: Prometheus, environment: Mapping[str, str]) -> None:
        self.prometheus, self._environment = prometheus, environment
        self.fired: set[str] = set()
        self.ended: set[str] = set()

    async def fires(self, name: str, *, timeout_seconds: float = PATIENCE_SECONDS, **labels: str) -> None:
        """Wait until the alert fires, and look as its page says."""
        await self.prometheus.until_fires(name, timeout_seconds=timeout_seconds, **labels)
        self.fired.add(name)
        queries = [of_this_release(each) for each in page_queries(name)]
        found = [await self.prometheus.query(each) for each in queries]
        assert not found or any(found), f"{name}: no query of its page finds anything"
        await asyncio.gather(*(asyncio.to_thread(self._run, name, each) for each in page_commands(name)))

    async def end(self, *names: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until none of these fires any more."""
        await self.prometheus.until_quiet(*names, timeout_seconds=timeout_seconds)
        self.ended |= set(names)

    def _run(self, name: str, command: str) -> None:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = {**broker_environment(self._environment), "PATH": path}
        done = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=COMMAND_SECONDS
        )
        told = f"{name}: {command} exits with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode in _OUTCOMES and (done.stdout or done.stderr), told
        assert "Usage:" not in done.stderr and "Traceback" not in done.stderr, told
