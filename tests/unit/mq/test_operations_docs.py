"""docs/operations.md names metrics that there are."""

import re
from pathlib import Path

from filer.store_metrics import StoreMetrics
from mq.metrics import Metrics
from mq.store_collector import StoreCollector

DOCUMENT = (Path(__file__).parents[3] / "docs" / "operations.md").read_text("utf-8")


def test_the_metrics_to_watch_exist() -> None:
    metrics = Metrics()
    metrics.registry.register(StoreCollector(StoreMetrics()))
    known = set(re.findall(r"^# TYPE (\w+)", metrics.render().decode(), re.MULTILINE))
    named = set(re.findall(r"braidmq_[a-z_]+", DOCUMENT))
    assert {"braidmq_in_touch", "braidmq_store_calls_total"} <= named
    assert named <= known
