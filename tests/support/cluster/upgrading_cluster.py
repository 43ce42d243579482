"""A cluster whose brokers run the version before this one, until each is upgraded."""

from collections.abc import Sequence
from typing import Any

from tests.support.broker.broker_process import BrokerProcess
from tests.support.cluster.cluster import Cluster
from tests.support.process.previous_version import (
    PREVIOUS_COMMIT,
    PREVIOUS_ENVIRONMENT,
    previous_python,
    previous_version,
)


class UpgradingCluster(Cluster):
    """`Cluster`, of brokers of the version before. `upgrade` replaces one by a broker of this version."""

    def __init__(self, *arguments: Any, commit: str = PREVIOUS_COMMIT, **named: Any) -> None:
        self._commit = commit
        self._arguments_of: dict[str, Sequence[str]] = {}
        super().__init__(*arguments, **named)

    async def upgrade(self, name: str, *more: str) -> None:
        """Drain a broker and start this version in its stead, with the same options, and with `more`."""
        code = await self.drain(name)
        member = self.brokers[name]
        assert code == 0, f"{name} ended with {code}:\n{member.process.log[-2000:]}"
        member.process = BrokerProcess(args=[*self._arguments_of[name], *more], env=self.store.environment)
        member.end.push(member.process)
        await self.start(name)

    def _process(self, name: str, arguments: Sequence[str]) -> BrokerProcess:
        self._arguments_of[name] = arguments
        env = self.store.environment | PREVIOUS_ENVIRONMENT
        python, folder = previous_python(self._commit), previous_version(self._commit)
        return BrokerProcess(args=arguments, env=env, forked=False, python=python, folder=folder)
