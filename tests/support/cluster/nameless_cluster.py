"""Brokers that do not name themselves when they call each other."""

from collections.abc import Sequence

from tests.support.broker.broker_process import BrokerProcess
from tests.support.cluster.cluster import Cluster


class NamelessCluster(Cluster):
    """Brokers of which nobody hears: a failover of one that lives must come from what is seen of it alone."""

    def _process(self, name: str, arguments: Sequence[str]) -> BrokerProcess:
        return BrokerProcess(
            args=arguments, env=self.store.environment, module="tests.support.broker.nameless_broker", forked=False
        )
