"""Metrics of the requests to the store, for Prometheus."""

from collections.abc import Iterable, Iterator
from itertools import product

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from filer.stores.decorators.store_health import StoreHealth
from filer.stores.decorators.store_metrics import OPERATIONS, OUTCOMES, OperationMetrics, StoreMetrics
from mq.metrics.histograms import DurationsCollector

_LABELS = ("operation", "outcome")
# Causes that are known beforehand. There are more, such as other errors of the operating system.
_CAUSES = ("ENOSPC", "EROFS", "EACCES", "EIO", "EMFILE", "403", "500", "503", "timeout", "connection", "busy")
_NO_ERRORS = dict.fromkeys(product(OPERATIONS, _CAUSES), 0)


class StoreCollector(Collector):
    """Exports the running totals of an instrumented store; puts are `create` and `replace`."""

    def __init__(self, metrics: StoreMetrics, health: StoreHealth) -> None:
        self._metrics, self._health = metrics, health
        self._durations = DurationsCollector(
            "braidmq_store_call_seconds", "How long requests to the object store took.", metrics.durations, "operation"
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the present totals."""
        calls = CounterMetricFamily("braidmq_store_calls", "Requests to the object store.", labels=_LABELS)
        size = CounterMetricFamily("braidmq_store_bytes", "Bytes sent to and received from the store.", labels=_LABELS)
        seconds = CounterMetricFamily("braidmq_store_seconds", "Total time of requests.", labels=_LABELS)
        for total in self._totals():
            labels = (total.operation, total.outcome)
            calls.add_metric(labels, total.calls)
            size.add_metric(labels, total.size_bytes)
            seconds.add_metric(labels, total.seconds)
        errors = CounterMetricFamily(
            "braidmq_store_errors", "Requests to the object store that failed.", labels=("operation", "cause")
        )
        for labels, count in {**_NO_ERRORS, **self._metrics.errors()}.items():
            errors.add_metric(labels, count)
        stalled = GaugeMetricFamily(
            "braidmq_store_stalled", "Calls that the object store has not done for longer than 1.5 seconds."
        )
        stalled.add_metric((), len(self._health.stalls()))
        yield from (calls, size, seconds, errors, stalled)
        yield from self._durations.collect()

    def _totals(self) -> Iterable[OperationMetrics]:
        """Return all possible totals, from 0 on."""
        known = {(total.operation, total.outcome): total for total in self._metrics.snapshot()}
        return (known.get(each) or OperationMetrics(*each) for each in product(OPERATIONS, OUTCOMES))
