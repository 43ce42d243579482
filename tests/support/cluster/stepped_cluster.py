"""A cluster of real processes whose wall clocks can be stepped one by one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.broker.broker_process import BrokerProcess
from tests.support.broker.stepped_broker import CLOCK_STEP, step_clock
from tests.support.cluster.cluster import Cluster
from tests.support.store.shared_store import SharedStore


class SteppedCluster(Cluster):
    """A `Cluster` of `tests.support.broker.stepped_broker`."""

    def __init__(self, folder: Path, store: SharedStore, **settings: Any) -> None:
        self._clocks = folder / "clocks"
        self._clocks.mkdir(parents=True)
        super().__init__(folder, store, **settings)

    def step_clock(self, name: str, seconds: float) -> None:
        """Set a broker's wall clock that far ahead of this machine's; negative: behind it."""
        step_clock(self._clocks / name, seconds)

    def _process(self, name: str, arguments: Sequence[str]) -> BrokerProcess:
        self.step_clock(name, 0.0)
        environment = {**self.store.environment, CLOCK_STEP: str(self._clocks / name)}
        return BrokerProcess(args=arguments, env=environment, module="tests.support.broker.stepped_broker")
