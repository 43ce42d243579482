"""Metrics of the requests to the store, for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from filer.stores.decorators.store_metrics import StoreMetrics

_LABELS = ("operation", "outcome")


class StoreCollector(Collector):
    """Exports the running totals of an instrumented store; puts are `create` and `replace`."""

    def __init__(self, metrics: StoreMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """The totals as of now."""
        calls = CounterMetricFamily("braidmq_store_calls", "Requests to the object store.", labels=_LABELS)
        size = CounterMetricFamily("braidmq_store_bytes", "Bytes sent to and received from the store.", labels=_LABELS)
        seconds = CounterMetricFamily("braidmq_store_seconds", "Total time of requests.", labels=_LABELS)
        for total in self._metrics.snapshot():
            labels = (total.operation, total.outcome)
            calls.add_metric(labels, total.calls)
            size.add_metric(labels, total.size_bytes)
            seconds.add_metric(labels, total.seconds)
        yield from (calls, size, seconds)
