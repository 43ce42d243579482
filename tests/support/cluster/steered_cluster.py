"""A cluster of real processes whose wall clocks can be stepped, and whose brokers can be made nameless, one by one."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.broker.broker_process import BrokerProcess
from tests.support.broker.steered_broker import STEERED_BY, Steering, steer
from tests.support.cluster.cluster import Cluster
from tests.support.store.shared_store import SharedStore


class SteeredCluster(Cluster):
    """A `Cluster` of `tests.support.broker.steered_broker`."""

    def __init__(self, folder: Path, store: SharedStore, **settings: Any) -> None:
        self._files = folder / "steering"
        self._files.mkdir(parents=True)
        self._told: defaultdict[str, Steering] = defaultdict(Steering)
        super().__init__(folder, store, **settings)

    def step_clock(self, name: str, seconds: float) -> None:
        """Set a broker's wall clock that far ahead of this machine's; negative: behind it."""
        self._tell(name, self._told[name]._replace(clock_ahead_seconds=seconds))

    def refuse_peers_and_say_nothing(self, name: str) -> None:
        """Refuse as `refuse_peers` does, and let nobody hear who calls: what is seen from outside is a dead broker."""
        self._tell(name, self._told[name]._replace(nameless=True))
        self.refuse_peers(name)

    def heal(self, name: str) -> None:
        """Restore all connections of a broker, and its name."""
        super().heal(name)
        self._tell(name, self._told[name]._replace(nameless=False))

    def _tell(self, name: str, steering: Steering) -> None:
        self._told[name] = steering
        steer(self._files / name, steering)

    def _process(self, name: str, arguments: Sequence[str]) -> BrokerProcess:
        self._tell(name, Steering())
        environment = {**self.store.environment, STEERED_BY: str(self._files / name)}
        return BrokerProcess(args=arguments, env=environment, module="tests.support.broker.steered_broker")
