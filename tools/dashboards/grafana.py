"""Dashboards as Grafana's JSON has them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

# Of Grafana 10.4; newer ones read it too.
SCHEMA_VERSION = 39
COLUMNS = 24
SELECTOR = 'namespace=~"$namespace",job=~"$job"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Kind = Literal["timeseries", "stat", "bargauge"]
# How many columns and rows each takes.
_SIZES: dict[Kind, tuple[int, int]] = {"timeseries": (8, 8), "stat": (4, 4), "bargauge": (8, 8)}


@dataclass(frozen=True, slots=True)
class Panel:
    """What one panel shows: queries with the names of their lines.

    `S` in a query stands for the series of the chosen cluster, `I` for the time of a rate. `unit` is one of Grafana's,
    and `least` where the axis begins.
    """

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    about: str = ""
    kind: Kind = "timeseries"
    least: int | None = 0


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Variable:
    """What one chooses above the panels: values of a label of a metric, or, with `given`, a number that one types."""

    name: str
    title: str
    metric: str = ""
    label: str = ""
    given: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. All begin with the variables of the cluster."""

    name: str
    title: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = ()


_OF_CLUSTER = (
    Variable("namespace", "Namespace", "braidmq_build_info", "namespace"),
    Variable("job", "Job", 'braidmq_build_info{namespace=~"$namespace"}', "job"),
)


def document(board: Board) -> dict[str, Any]:
    """The dashboard, as JSON."""
    return {
        "uid": f"braidmq-{board.name}",
        "title": f"BraidMQ / {board.title}",
        "tags": ["braidmq"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [_LINK],
        "templating": {"list": [_DATASOURCE, *(_variable(each) for each in (*_OF_CLUSTER, *board.variables))]},
        "panels": list(_laid_out(board.rows)),
    }


_LINK = {
    "type": "dashboards",
    "title": "BraidMQ",
    "tags": ["braidmq"],
    "asDropdown": True,
    "includeVars": True,
    "keepTime": True,
}
_DATASOURCE = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    named = {"name": variable.name, "label": variable.title}
    if variable.given:
        return {**named, "type": "textbox", "query": variable.given}
    query = f"label_values({variable.metric}, {variable.label})"
    return {
        **named,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        # When the time range changes: topics and groups come and go.
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Series without that label are meant too: a plain Prometheus has no namespaces.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _laid_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Each row's panels from left to right, and on below where they do not fit."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {**_at(number, 0, top, COLUMNS, 1), "type": "row", "title": row.title, "collapsed": False, "panels": []}
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            number += 1
            width, tall = _SIZES[panel.kind]
            if left + width > COLUMNS:
                top, left, height = top + height, 0, 0
            yield {**_at(number, left, top, width, tall), **_panel(panel)}
            left, height = left + width, max(height, tall)
        top += height


def _at(number: int, left: int, top: int, width: int, height: int) -> dict[str, Any]:
    return {"id": number, "gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel) -> dict[str, Any]:
    lines = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": panel.least,
                **({"custom": lines} if panel.kind == "timeseries" else {}),
            },
            "overrides": [],
        },
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": expr.replace("{S", "{" + SELECTOR).replace("[I]", "[$__rate_interval]"),
                "legendFormat": legend,
                **({"instant": True} if panel.kind != "timeseries" else {}),
            }
            for number, (expr, legend) in enumerate(panel.queries)
        ],
    }


_REDUCED = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
_OPTIONS: dict[Kind, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {**_REDUCED, "colorMode": "none", "graphMode": "area", "textMode": "auto"},
    "bargauge": {**_REDUCED, "displayMode": "gradient", "orientation": "horizontal"},
}
