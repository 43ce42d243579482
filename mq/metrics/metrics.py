"""The metrics of a broker, for Prometheus."""

import platform
from collections.abc import Iterator

from prometheus_client import Gauge, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from mq.base.settings import METRICS_TOPICS
from mq.base.version import VERSION
from mq.metrics.cluster_metrics import ClusterMetrics
from mq.metrics.group_metrics import GroupMetrics
from mq.metrics.registry import Registry
from mq.metrics.request_metrics import RequestMetrics
from mq.metrics.topic_metrics import TopicMetrics
from mq.metrics.upkeep_metrics import UpkeepMetrics


class Metrics:
    """The metrics of one broker. At most `most_topics` topics have series of their own."""

    def __init__(self, most_topics: int = METRICS_TOPICS) -> None:
        self.registry = Registry()
        build = Gauge(
            "braidmq_build_info",
            "Always 1; tells the version of the broker and that of its Python.",
            ["version", "python"],
            registry=self.registry,
        )
        build.labels(VERSION, platform.python_version()).set(1)
        self.requests = RequestMetrics(self.registry)
        self.cluster = ClusterMetrics(self.registry)
        self.upkeep = UpkeepMetrics(self.registry)
        self.topics, self.groups = TopicMetrics(most_topics), GroupMetrics()

    def pieces(self) -> Iterator[bytes]:
        """Yield Prometheus' text format, family by family."""
        for family in self.registry.collect():
            yield generate_latest(_Only(family))
        yield from self.topics.pieces()
        yield from self.groups.pieces()


class _Only(Collector):
    """That family alone."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """That family."""
        yield self._family
