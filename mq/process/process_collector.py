"""Metrics of the process beyond Prometheus' library: certificates, the event loop, the memory's limit."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class BrokerProcessCollector(Collector):
    """Exports when certificates expire, how long the event loop was blocked, and the memory limit, if any."""

    def __init__(
        self,
        expires_seconds: Callable[[], Mapping[str, int]],
        blocked_seconds: Callable[[], float],
        memory_limit_bytes: int | None,
    ) -> None:
        self._expires_seconds, self._blocked_seconds = expires_seconds, blocked_seconds
        self._memory_limit_bytes = memory_limit_bytes

    def collect(self) -> Iterator[Metric]:
        """Yield the present values."""
        expiry = GaugeMetricFamily(
            "braidmq_certificate_expiry_timestamp_seconds",
            "When the certificate of a listener expires, in seconds since the epoch.",
            labels=["listener"],
        )
        for listener, seconds in self._expires_seconds().items():
            expiry.add_metric((listener,), seconds)
        yield expiry
        yield CounterMetricFamily(
            "braidmq_event_loop_blocked_seconds",
            "For how long something has kept the event loop from all else, of what took longer than 0.1 seconds.",
            value=self._blocked_seconds(),
        )
        if self._memory_limit_bytes is not None:
            yield GaugeMetricFamily(
                "braidmq_memory_limit_bytes",
                "Memory that this process may have: the limit of its control group, or the machine's.",
                value=self._memory_limit_bytes,
            )
