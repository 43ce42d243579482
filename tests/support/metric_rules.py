"""The rules for metrics that promtool has (`promtool check metrics`), which is not installed here.

problems("# TYPE a_ms gauge\\na_ms 1\\n")
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_BASE_UNITS = ("amperes", "bytes", "celsius", "grams", "joules", "meters", "ratio", "seconds", "volts")
_OTHER_UNITS = {
    **dict.fromkeys(("minutes", "hours", "days", "weeks"), "seconds"),
    **dict.fromkeys(("bits",), "bytes"),
    **dict.fromkeys(("kelvin", "fahrenheit"), "celsius"),
    **dict.fromkeys(("inches", "feet", "yards", "miles"), "meters"),
    **dict.fromkeys(("ounces", "pounds"), "grams"),
    **dict.fromkeys(("calories",), "joules"),
    **dict.fromkeys(("percent",), "ratio"),
}
_PREFIXES = (
    *("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "mega", "giga", "tera", "peta"),
    *("kibi", "mebi", "gibi", "tebi", "pebi"),
)
_SHORT_UNITS = {"s", "sec", "ms", "us", "ns", "m", "min", "h", "d", "b", "kb", "mb", "gb", "tb", "pb", "mib", "gib"}
_TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}
_SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
_SAMPLE = re.compile(r"([^{ ]+)(?:\{(.*)\})? \S+\Z")
_LABEL = re.compile(r'([^=,]+)="(?:[^"\\]|\\.)*"')


@dataclass(slots=True)
class _Metric:
    name: str
    type: str = "untyped"
    help: str = ""
    labels: set[str] = field(default_factory=set)


def problems(text: str) -> list[str]:
    """What is wrong with the metrics of a text in Prometheus' format."""
    metrics, found = _parsed(text)
    for metric in metrics:
        found += [f"{metric.name}: {problem}" for problem in _problems_of(metric)]
    return found


def _parsed(text: str) -> tuple[list[_Metric], list[str]]:
    metrics: dict[str, _Metric] = {}
    series: Counter[str] = Counter()
    types: Counter[str] = Counter()
    found: list[str] = []
    for line in filter(None, text.splitlines()):
        if line.startswith("#"):
            _, word, name, *rest = line.split(" ", 3)
            metric = metrics.setdefault(name, _Metric(name))
            if word == "TYPE":
                metric.type = rest[0]
                types[name] += 1
            else:
                metric.help = "".join(rest)
            continue
        match = _SAMPLE.match(line)
        if match is None:
            found.append(f"{line!r} cannot be parsed")
            continue
        series[line.rsplit(" ", 1)[0]] += 1
        owner = _owner(metrics, match[1])
        owner.labels.update(label[1] for label in _LABEL.finditer(match[2] or ""))
    found += [f"{name}: told more than once" for name, times in (types | series).items() if times > 1]
    return list(metrics.values()), found


def _owner(metrics: dict[str, _Metric], sample: str) -> _Metric:
    for type_, suffixes in _SUFFIXES.items():
        for suffix in suffixes:
            metric = metrics.get(sample.removesuffix(suffix))
            if metric is not None and metric.name != sample and metric.type == type_:
                return metric
    return metrics.setdefault(sample, _Metric(sample))


def _problems_of(metric: _Metric) -> Iterator[str]:
    name, words = metric.name, metric.name.split("_")
    if not metric.help:
        yield "no help text"
    if metric.type == "untyped":
        yield "no type"
    if (metric.type == "counter") != name.endswith("_total"):
        yield "counters, and no others, end in _total"
    for word in words:
        if (base := _base_unit(word)) is not None:
            yield f"use {base} instead of {word}"
        if word in _SHORT_UNITS:
            yield f"{word} is an abbreviated unit"
        if word in _TYPES:
            yield f"{word} is a type"
    if ":" in name:
        yield "colons are for recording rules"
    for each in (name, *metric.labels):
        if re.search("[a-z][A-Z]", each):
            yield f"{each} is not in snake_case"
    for type_, suffixes in _SUFFIXES.items():
        if metric.type not in _SUFFIXES and name.endswith(suffixes):
            yield f"has an ending of a {type_}"
    for label, type_ in (("le", "histogram"), ("quantile", "summary")):
        if label in metric.labels and metric.type != type_:
            yield f"label {label} is for a {type_}"


def _base_unit(word: str) -> str | None:
    """The unit to use instead of this one; None if this is a base unit, or none."""
    if word in _BASE_UNITS:
        return None
    for prefix in ("", *_PREFIXES):
        unit = word.removeprefix(prefix)
        if word.startswith(prefix) and unit in (*_BASE_UNITS, *_OTHER_UNITS):
            return _OTHER_UNITS.get(unit, unit)
    return None
