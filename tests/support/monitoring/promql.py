"""What a query for Prometheus names: enough of its language to find series, labels and their values.

    Query("sum by (topic) (rate(a_total{kind=~'x|y'}[5m]))")

It is no check of the syntax; promtool has that.
"""

import re
from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from tests.support.monitoring.exposition import Series

WORDS = frozenset(
    (
        *(
            "abs",
            "absent",
            "and",
            "bool",
            "by",
            "count",
            "delta",
            "deriv",
            "histogram_quantile",
            "ignoring",
            "increase",
        ),
        *("max", "min", "on", "or", "rate", "sum", "time", "topk", "unless", "vector"),
    )
)
"""Of the language."""
# Prometheus' own: what it says of targets and alerts.
OWN_SERIES: Series = {"up": {}, "ALERTS": {"alertname": set(), "alertstate": {"firing", "pending"}}}
OF_TARGETS = frozenset({"job", "instance", "namespace"})
"""Labels that scraping adds."""
OF_PEOPLE = OF_TARGETS | {"alertname", "topic", "topics", "group"}
"""Labels whose values people choose."""
_STRING = r'"(?:[^"\\]|\\.)*"'
_SELECTOR = re.compile(rf"([a-zA-Z_:][\w:]*)\{{((?:[^{{}}\"]|{_STRING})*)\}}")
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_STRING})")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_DURATION = re.compile(r"\[[^\]]*\]")
_NUMBER = re.compile(r"(?<![\w:])\d[\d.]*(?:e\d+)?")


class Selected(NamedTuple):
    """The series of one name in a query, and by which values of labels they are chosen."""

    name: str
    values: Mapping[str, frozenset[str]]


class Query:
    """A query. `selected` are its series; `grouped` the labels by which it sums them up."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.selected = tuple(_selected(text))
        self.grouped = frozenset(
            label.strip() for each in _GROUPING.findall(text) for label in each.split(",") if label.strip()
        )

    def problems(self, series: Series) -> Iterator[str]:
        """What of it is not among `series`, each with the values of its labels."""
        known = {**OWN_SERIES, **series}
        labels = set(OF_TARGETS)
        for name, values in self.selected:
            if name not in known:
                yield f"there is no metric {name}"
                continue
            labels |= set(known[name])
            for label, wanted in values.items():
                if label not in known[name].keys() | OF_TARGETS:
                    yield f"{name} has no label {label}"
                elif label not in OF_PEOPLE and (lacking := wanted - set(known[name][label])):
                    yield f"{name} has no {label} {', '.join(sorted(lacking))}"
        if self.grouped - labels:
            yield f"no series in it has a label {', '.join(sorted(self.grouped - labels))}"
        for word in self._words():
            yield f"{word} is neither a series with its labels nor a word of the language"

    def labels(self, series: Series) -> frozenset[str]:
        """Those that what it finds may have."""
        if self.grouped:
            return self.grouped - {"le"}
        known = {**OWN_SERIES, **series}
        # Of what a rule has recorded, those that it has kept.
        of_targets = OF_TARGETS if any(":" not in each.name for each in self.selected) else frozenset[str]()
        return of_targets.union(*(known.get(each.name, {}) for each in self.selected))

    def recorded(self, series: Series) -> dict[str, Set[str]]:
        """The labels that a rule records with this query, and which values they may have."""
        known = [series.get(each.name, {}) for each in self.selected]
        return {label: set().union(*(each.get(label, ()) for each in known)) for label in self.labels(series)}

    def _words(self) -> Iterator[str]:
        rest = _DURATION.sub("", _GROUPING.sub("", _SELECTOR.sub("", self.text)))
        for each in _NAME.findall(_NUMBER.sub("", rest)):
            if each not in WORDS:
                yield each


def _selected(text: str) -> Iterator[Selected]:
    for name, matchers in _SELECTOR.findall(text):
        values: dict[str, frozenset[str]] = {}
        for label, sign, quoted in _MATCHER.findall(matchers):
            alternatives = quoted[1:-1].split("|") if "~" in sign else [quoted[1:-1]]
            values[label] = frozenset(alternatives)
        yield Selected(name, values)
