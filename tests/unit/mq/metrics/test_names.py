import re

import pytest
from prometheus_client import ProcessCollector

from filer.clock import ManualClock
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.decorators.store_metrics import StoreMetrics
from mq.metrics.metrics import Metrics
from mq.process.process_collector import BrokerProcessCollector
from mq.process.store_collector import StoreCollector
from tests.support.metric_rules import problems


@pytest.fixture
def text() -> str:
    """All metrics there are."""
    metrics = Metrics()
    metrics.topics.of("t").open()
    metrics.registry.register(StoreCollector(StoreMetrics(), StoreHealth(ManualClock())))
    metrics.registry.register(BrokerProcessCollector(lambda: {"clients": 1}, lambda: 0.0, 1))
    ProcessCollector(registry=metrics.registry)
    return b"".join(metrics.pieces()).decode()


def test_all_metrics_obey_promtools_rules(text: str) -> None:
    assert problems(text) == []


def test_all_metrics_are_the_brokers_or_its_process(text: str) -> None:
    names = re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)
    assert [name for name in names if not name.startswith(("braidmq_", "process_"))] == []


def test_all_histograms_of_time_are_in_seconds_and_all_of_size_in_bytes(text: str) -> None:
    names = re.findall(r"^# TYPE (\w+) histogram", text, re.MULTILINE)
    assert len(names) == 5
    assert [name for name in names if not name.endswith(("_seconds", "_bytes"))] == []


def told(name: str, kind: str = "gauge", *, documentation: str = "What it is.", sample: str = "") -> str:
    return f"# HELP {name} {documentation}\n# TYPE {name} {kind}\n{sample or name} 1.0\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (told("a", documentation=""), "no help text"),
        ("# HELP a What it is.\na 1\n", "no type"),
        ("a 1\n", "no type"),
        (told("a_seen", "counter"), "end in _total"),
        (told("a_total"), "end in _total"),
        (told("a_milliseconds"), "use seconds instead of milliseconds"),
        (told("a_minutes"), "use seconds instead of minutes"),
        (told("a_kilobytes_total", "counter"), "use bytes instead of kilobytes"),
        (told("a_mebibytes"), "use bytes instead of mebibytes"),
        (told("a_ms"), "ms is an abbreviated unit"),
        (told("a_mb_total", "counter"), "mb is an abbreviated unit"),
        (told("a_gauge"), "gauge is a type"),
        (told("a_counter_total", "counter"), "counter is a type"),
        (told("a:b"), "colons"),
        (told("openFiles"), "snake_case"),
        (told("a", sample='a{someLabel="x"}'), "snake_case"),
        (told("a_count"), "ending of a histogram"),
        (told("a_bucket"), "ending of a histogram"),
        (told("a", sample='a{le="1"}'), "label le"),
        (told("a", sample='a{quantile="0.5"}'), "label quantile"),
        (told("a") + told("a"), "more than once"),
        (told("a") + "a 2\n", "more than once"),
    ],
)
def test_what_breaks_a_rule_is_found(text: str, problem: str) -> None:
    assert [each for each in problems(text) if problem in each] != []


@pytest.mark.parametrize(
    "text",
    [
        told("a_seconds"),
        told("a_bytes_total", "counter"),
        told("a_seconds", "histogram", sample='a_seconds_bucket{le="+Inf"}'),
        told("a_info", sample='a_info{version="1,2=\\"3"}'),
        told("open_fds"),
    ],
)
def test_what_breaks_no_rule_is_not_found(text: str) -> None:
    assert problems(text) == []
