"""The rules and dashboards that the chart has, and the pages about its alerts."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[3]
RULES = ROOT / "helm" / "braidmq" / "rules" / "braidmq.yaml"
DASHBOARDS = ROOT / "helm" / "braidmq" / "dashboards"
PAGES = ROOT / "docs" / "runbooks"
_BLOCK = re.compile(r"^```promql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Rule = Mapping[str, Any]


class Panel(NamedTuple):
    """A panel of a dashboard: its queries, as Grafana has them, each with the name of its lines."""

    dashboard: str
    title: str
    queries: Sequence[tuple[str, str]]

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.title}"


def groups() -> Sequence[Mapping[str, Any]]:
    """The groups of the plain file of rules."""
    found: list[Mapping[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


def rules() -> Iterator[Rule]:
    """All rules."""
    for group in groups():
        yield from group["rules"]


def alerts() -> Mapping[str, Rule]:
    """The alerts by their names."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> Mapping[str, Rule]:
    """The recording rules by the names of what they record."""
    return {rule["record"]: rule for rule in rules() if "record" in rule}


def dashboards() -> Mapping[str, Mapping[str, Any]]:
    """Each dashboard, by the name of its file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def panels() -> Iterator[Panel]:
    """The panels of all dashboards."""
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                queries = [(each["expr"], each["legendFormat"]) for each in panel["targets"]]
                yield Panel(name, panel["title"], queries)


def page(alert: str) -> str:
    """The page about an alert."""
    return (PAGES / f"{alert}.md").read_text()


def page_queries(alert: str) -> list[str]:
    """The queries of the page about an alert."""
    return [each.strip() for each in _BLOCK.findall(page(alert))]


def page_commands(alert: str) -> list[str]:
    """The commands of the page about an alert, line by line."""
    return [line for each in _COMMANDS.findall(page(alert)) for line in each.splitlines()]
