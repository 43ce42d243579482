from prometheus_client import CollectorRegistry, generate_latest

from filer.errors import ObjectExists
from filer.stores.decorators.store_metrics import StoreMetrics
from mq.process.store_collector import StoreCollector


def test_totals_are_shown_as_they_are_when_asked() -> None:
    metrics, registry = StoreMetrics(), CollectorRegistry()
    registry.register(StoreCollector(metrics))
    metrics.record("create", None, size_bytes=10, seconds=0.5)
    metrics.record("create", None, size_bytes=5, seconds=0.25)
    metrics.record("create", ObjectExists(), size_bytes=5, seconds=0.25)
    text = generate_latest(registry).decode()
    assert 'braidmq_store_calls_total{operation="create",outcome="ok"} 2.0' in text
    assert 'braidmq_store_bytes_total{operation="create",outcome="ok"} 15.0' in text
    assert 'braidmq_store_seconds_total{operation="create",outcome="ok"} 0.75' in text
    assert 'braidmq_store_calls_total{operation="create",outcome="exists"} 1.0' in text
