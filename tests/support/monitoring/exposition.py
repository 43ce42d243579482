"""What a broker tells Prometheus, as names, labels and their values."""

from collections.abc import Mapping, Set
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Series: TypeAlias = Mapping[str, Mapping[str, Set[str]]]
"""The values of each label of each metric."""


def series_of(text: str) -> Series:
    """The series in a text of Prometheus' format."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found
