"""docs/operations.md names the metrics that there are, and no others."""

import re
from pathlib import Path

from filer.clock import ManualClock
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.decorators.store_metrics import StoreMetrics
from mq.metrics.metrics import Metrics
from mq.metrics.topic_families import SERIES
from mq.process.process_collector import BrokerProcessCollector
from mq.process.store_collector import StoreCollector

DOCUMENT = (Path(__file__).parents[3] / "docs" / "operations.md").read_text("utf-8")


def test_the_metrics_of_a_broker_are_those_of_the_page() -> None:
    metrics = Metrics()
    metrics.registry.register(StoreCollector(StoreMetrics(), StoreHealth(ManualClock())))
    metrics.registry.register(BrokerProcessCollector(lambda: {"clients": 1}, lambda: 0.0, 1))
    known = set(re.findall(r"^# TYPE (\w+)", b"".join(metrics.pieces()).decode(), re.MULTILINE))
    named = {name.removesuffix("_bucket") for name in re.findall(r"braidmq_[a-z_]+", DOCUMENT)}
    assert {"braidmq_in_touch", "braidmq_store_calls_total"} <= known
    assert named == known


def test_the_page_tells_how_many_series_a_topic_has() -> None:
    assert f"by name, {SERIES} series each" in DOCUMENT
