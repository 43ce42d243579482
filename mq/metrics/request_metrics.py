"""Metrics of connections and requests, and of the memory that they take."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from filer.durations import Durations
from mq.metrics.histograms import DurationsCollector


class RequestMetrics:
    """How a broker serves its clients, whatever the topic."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.refused = Counter(
            "braidmq_publishes_refused", "Publishes refused, by the type of the problem.", ["reason"], registry=registry
        )
        self.publish = {"stored": Durations(), "replicated": Durations()}
        self.read, self.forward = Durations(), Durations()
        for histogram in (
            DurationsCollector(
                "braidmq_publish_seconds",
                "From when a publish's body has arrived until it is acknowledged, by what that promises.",
                self.publish,
                "acks",
            ),
            DurationsCollector(
                "braidmq_read_seconds",
                "How long it took to find the messages of a page; pages without any do not count.",
                self.read,
            ),
            DurationsCollector(
                "braidmq_forward_seconds",
                "How long calls took that send messages to the broker that owns their segment.",
                self.forward,
            ),
        ):
            registry.register(histogram)
        self._connections: list[Callable[[], int]] = []
        connections = Gauge("braidmq_connections", "Open connections of clients and brokers.", registry=registry)
        connections.set_function(lambda: sum(count() for count in self._connections))
        self.connections_refused = Counter(
            "braidmq_connections_refused",
            "Connections refused or ended before their time, by the reason.",
            ["reason"],
            registry=registry,
        )
        self.pending_bytes = Gauge(
            "braidmq_front_store_pending_bytes", "Bytes accepted and not stored yet.", registry=registry
        )
        self.front_store_limit_bytes = Gauge(
            "braidmq_front_store_limit_bytes",
            "Bytes accepted and not stored yet that this broker takes at most.",
            registry=registry,
        )
        self.recent_bytes = Gauge(
            "braidmq_front_store_recent_bytes", "Bytes of stored messages held in memory.", registry=registry
        )
        self.read_bytes = Gauge(
            "braidmq_read_bytes", "Bytes of answers with messages that are put together or sent.", registry=registry
        )
        self.streams = Gauge("braidmq_streams", "Subscriptions being served.", registry=registry)
        self.storage_quota_used = Gauge(
            "braidmq_storage_quota_used_ratio",
            "Share of a quota's storage_bytes that its topics have, the least quota of these topics.",
            ["topics"],
            registry=registry,
        )
        self.storage_quota_age = Gauge(
            "braidmq_storage_quota_age_seconds",
            "How long ago it was measured what the topics of a storage quota have.",
            ["topics"],
            registry=registry,
        )
        self.audit_failures = Counter(
            "braidmq_audit_failures", "Records of the audit trail that could not be stored.", registry=registry
        )
        self.loads_failed = Counter(
            "braidmq_load_commits_failed",
            "Commits of bulk loads that were refused for their files, or whose outcome is unknown.",
            ["reason"],
            registry=registry,
        )
        for reason in ("refused", "unknown"):
            self.loads_failed.labels(reason)

    def show_storage(self, used: Mapping[str, tuple[float, float]]) -> None:
        """Show how much of their quotas topics have used, as a ratio, and how many seconds ago that was measured."""
        for gauge in (self.storage_quota_used, self.storage_quota_age):
            gauge.clear()
        for topics, (ratio, age_seconds) in used.items():
            self.storage_quota_used.labels(topics).set(ratio)
            self.storage_quota_age.labels(topics).set(age_seconds)

    def count_connections(self, count: Callable[[], int]) -> None:
        """Also count the connections of this listener."""
        self._connections.append(count)
