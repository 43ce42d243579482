"""The chart's rules with times that a test can wait for."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.support.kube.chart import GIVEN, NAMESPACE, manifests, one
from tests.support.monitoring.chart_queries import alerts

JOB = "queue-braidmq"
SELECTOR = f'namespace="{NAMESPACE}",job="{JOB}"'
HOLD, WINDOW_SECONDS = "2s", 12
_RULES = "monitoring.rules"
_WINDOW = re.compile(r"\[\d+[smh]\]")


def short_rules(thresholds: Mapping[str, float] = {}, *, window_seconds: int = WINDOW_SECONDS) -> str:
    """The rules as the chart renders them, for Prometheus: what has to hold does so for two seconds.

    What values cannot change, the times over which rates are taken, is replaced.
    """
    given = [f"{_RULES}.enabled=true"]
    given += [f"{_RULES}.alerts.{name}.for={HOLD}" for name, rule in alerts().items() if "for" in rule]
    given += [f"{_RULES}.alerts.{name}.threshold={value:f}" for name, value in thresholds.items()]
    made: Mapping[str, Any] = one(manifests(given=(*GIVEN, *given)), "PrometheusRule", JOB)
    text: str = yaml.safe_dump({"groups": made["spec"]["groups"]}, width=10_000)
    return _WINDOW.sub(f"[{window_seconds}s]", text)


def of_this_release(query: str) -> str:
    """A query of the plain file or of a page, about the series of this release."""
    return query.replace('job="braidmq"', SELECTOR)
