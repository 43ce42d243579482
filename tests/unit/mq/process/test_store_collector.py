from prometheus_client import CollectorRegistry, generate_latest

from filer.clock import ManualClock
from filer.errors import ObjectExists, OutcomeUnknown
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.decorators.store_metrics import StoreMetrics
from mq.process.store_collector import StoreCollector


async def test_totals_are_shown_as_they_are_when_asked() -> None:
    clock = ManualClock()
    health = StoreHealth(clock)
    metrics, registry = StoreMetrics(), CollectorRegistry()
    registry.register(StoreCollector(metrics, health))
    metrics.record("create", None, size_bytes=10, seconds=0.5)
    metrics.record("create", None, size_bytes=5, seconds=0.25)
    metrics.record("create", ObjectExists(), size_bytes=5, seconds=0.25)
    text = generate_latest(registry).decode()
    assert 'braidmq_store_calls_total{operation="create",outcome="ok"} 2.0' in text
    assert 'braidmq_store_bytes_total{operation="create",outcome="ok"} 15.0' in text
    assert 'braidmq_store_seconds_total{operation="create",outcome="ok"} 0.75' in text
    assert 'braidmq_store_calls_total{operation="create",outcome="exists"} 1.0' in text
    assert 'braidmq_store_call_seconds_bucket{le="0.25",operation="create"} 2.0' in text
    assert 'braidmq_store_call_seconds_count{operation="create"} 3.0' in text
    assert 'braidmq_store_call_seconds_count{operation="get"} 0.0' in text
    metrics.record("create", OutcomeUnknown("full", cause="ENOSPC"), size_bytes=5, seconds=0.25)
    call = health.begin("create", "k")
    await clock.advance(2)
    text = generate_latest(registry).decode()
    assert 'braidmq_store_errors_total{cause="ENOSPC",operation="create"} 1.0' in text
    assert "braidmq_store_stalled 1.0" in text
    health.end(call, None)
    assert "braidmq_store_stalled 0.0" in generate_latest(registry).decode()
