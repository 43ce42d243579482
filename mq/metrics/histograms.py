"""Histograms of durations, in the form of Prometheus."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from filer.durations import BOUNDS_SECONDS, Durations

_BOUNDS = (*map(str, BOUNDS_SECONDS), "+Inf")


class DurationsCollector(Collector):
    """A histogram of durations, by the values of one label or of none."""

    def __init__(
        self, name: str, documentation: str, durations: Durations | Mapping[str, Durations], label: str = ""
    ) -> None:
        self._name, self._documentation, self._durations, self._label = name, documentation, durations, label

    def collect(self) -> Iterator[Metric]:
        """The counts as of now."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label] if self._label else [])
        if isinstance(self._durations, Durations):
            family.add_metric((), _buckets(self._durations), self._durations.sum_seconds)
        else:
            for value, durations in self._durations.items():
                family.add_metric((value,), _buckets(durations), durations.sum_seconds)
        yield family


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    return list(zip(_BOUNDS, map(float, durations.cumulated()), strict=True))
