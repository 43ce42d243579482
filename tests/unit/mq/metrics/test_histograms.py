from prometheus_client import generate_latest

from filer.durations import Durations
from mq.metrics.histograms import DurationsCollector
from mq.metrics.registry import Registry


def test_a_histogram_without_a_label() -> None:
    registry, durations = Registry(), Durations()
    registry.register(DurationsCollector("a_seconds", "How long it took.", durations))
    durations.observe(0.02)
    durations.observe(60)
    assert registry.get_sample_value("a_seconds_bucket", {"le": "0.01"}) == 0
    assert registry.get_sample_value("a_seconds_bucket", {"le": "0.025"}) == 1
    assert registry.get_sample_value("a_seconds_bucket", {"le": "30.0"}) == 1
    assert registry.get_sample_value("a_seconds_bucket", {"le": "+Inf"}) == 2
    assert registry.get_sample_value("a_seconds_count") == 2
    assert registry.get_sample_value("a_seconds_sum") == 60.02


def test_each_value_of_a_label_has_its_own_from_the_start() -> None:
    registry, durations = Registry(), {"one": Durations(), "other": Durations()}
    registry.register(DurationsCollector("a_seconds", "How long it took.", durations, "kind"))
    durations["one"].observe(0.02)
    assert registry.get_sample_value("a_seconds_count", {"kind": "one"}) == 1
    assert registry.get_sample_value("a_seconds_count", {"kind": "other"}) == 0
    assert b"# TYPE a_seconds histogram" in generate_latest(registry)
