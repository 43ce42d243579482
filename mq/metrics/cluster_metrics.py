"""Metrics of the broker as one of its cluster."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class ClusterMetrics:
    """What a broker knows of its cluster, and its role in it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.ready = Gauge(
            "braidmq_ready", "Whether this broker welcomes requests, as /readyz says (0 or 1).", registry=registry
        )
        self.leads = Gauge("braidmq_leads", "Whether this broker leads its cluster (0 or 1).", registry=registry)
        self.in_touch = Gauge(
            "braidmq_in_touch",
            "Whether this broker is certain that the cluster counts it as alive (0 or 1).",
            registry=registry,
        )
        self.lost_touch = Counter(
            "braidmq_lost_touch",
            "Times that this broker was no longer certain that the cluster counts it as alive.",
            registry=registry,
        )
        self._was_in_touch = False
        self.brokers = Gauge("braidmq_brokers", "Live brokers known to this one.", registry=registry)
        self.segments_owned = Gauge(
            "braidmq_segments_owned", "Open segments that this broker writes.", registry=registry
        )
        self.brokers_wanted = Gauge(
            "braidmq_brokers_wanted",
            "How many brokers the traffic calls for, at the leader; 0 at the others.",
            registry=registry,
        )
        self.policy_version = Gauge(
            "braidmq_policy_version",
            "Version of the policy in force at this broker; 0 if there is none.",
            registry=registry,
        )
        self.policy_failures = Counter(
            "braidmq_policy_failures",
            "Looks at the store's policy that found it unusable, or did not reach it; the one before stays in force.",
            registry=registry,
        )

    def see_touch(self, in_touch: bool) -> None:
        """Report whether this broker is in touch now, and count each time that it falls out of touch."""
        if self._was_in_touch and not in_touch:
            self.lost_touch.inc()
        self._was_in_touch = in_touch
        self.in_touch.set(in_touch)
