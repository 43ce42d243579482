"""A cluster whose brokers kill themselves at a named step, each once, when a test says so.

    with DeadlyCluster(tmp_path, SharedDirectory(tmp_path / "store"), brokers=3) as cluster:
        cluster.kill_at("begun", "b0", "b1")  # the first of them to get there
        ...
        death = await cluster.death()
        await cluster.start(death.broker)

Every broker keeps each topic.json that it replaces, so `topic_complaints` checks all versions ever.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filer.topic.topic_state import TopicState
from tests.support.broker.broker_process import BrokerProcess
from tests.support.broker.deadly_broker import LATE_STEP, STEPS, TAKE_OVER_STEPS
from tests.support.cluster.cluster import Cluster
from tests.support.store.shared_store import SharedStore
from tests.support.topic.topic_history import TopicHistory

DEATH_SECONDS = 40.0
POLL_SECONDS = 0.02
SIGKILLED = -9


@dataclass(frozen=True)
class Death:
    """The broker that died at the chosen step, and whether it believed that it led the cluster."""

    broker: str
    led: bool


class DeadlyCluster(Cluster):
    """A `Cluster` of `tests.support.broker.deadly_broker`."""

    def __init__(self, folder: Path, store: SharedStore, **settings: Any) -> None:
        self._fuses, self._versions = folder / "fuses", folder / "versions"
        for each in (self._fuses, self._versions):
            each.mkdir(parents=True)
        self._step = ""
        super().__init__(folder, store, **settings)

    def kill_at(self, step: str, *names: str, topic: str = "") -> None:
        """Make the first of these brokers that passes the step die there, in work on one topic or on any."""
        assert step in (*STEPS, LATE_STEP, *TAKE_OVER_STEPS), f"there is no step {step!r}"
        for path in self._fuses.iterdir():
            path.unlink()
        self._step = step
        for name in names:
            (self._fuses / name).write_text(f"{topic}:{step}")

    async def death(self) -> Death:
        """Wait until one has died. Raises `AssertionError` if none does."""
        blown = self._fuses / "blown"
        try:
            async with asyncio.timeout(DEATH_SECONDS):
                while not (blown.exists() and blown.read_text()):
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"nobody has got to {self._step!r}") from None
        name, led = blown.read_text().split()
        code = await asyncio.to_thread(self.brokers[name].process.wait)
        assert code == SIGKILLED, f"{name} ended with {code}"
        return Death(name, led == "leads")

    def topic_complaints(self) -> list[str]:
        """What is wrong with any version of any topic.json, between two versions, or if one is missing."""
        topics = {path.name.rpartition("-")[0] for path in self._versions.iterdir()}
        return [complaint for topic in sorted(topics) for complaint in self._complaints(topic)]

    def _complaints(self, topic: str) -> list[str]:
        newest = self.store.topic_state(topic)
        kept = [TopicState.from_json(path.read_bytes()) for path in self._versions.glob(f"{topic}-*.json")]
        states = {state.version: state for state in (newest, *kept)}
        history = TopicHistory(topic)
        for version in sorted(states):
            history.record(states[version].to_json())
        missing = sorted(set(range(1, newest.version)) - states.keys())
        return [*history.complaints, *(f"{topic}: version {version} was not kept" for version in missing)]

    def _process(self, name: str, arguments: Sequence[str]) -> BrokerProcess:
        environment = self.store.environment | {"DEADLY_FILE": str(self._fuses / name)}
        return BrokerProcess(args=arguments, env=environment, module="tests.support.broker.deadly_broker")
