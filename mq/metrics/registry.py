"""Where the metrics of one broker are registered."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric


class Registry(CollectorRegistry):
    """The registry of one broker, since several may live in one process.

    It leaves out the series `…_created`, the times at which other series began. They would double the number of
    series, and the library's own switch for them holds for the whole process, which may be a user's.
    """

    def collect(self) -> Iterator[Metric]:
        """All metrics as of now."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
