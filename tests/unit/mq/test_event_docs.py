"""docs/operations.md lists the events that the code logs, with their fields, and no others."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
MARKS = {"debug": "?", "info": "", "warning": "!", "error": "!!"}


def _event_of(call: ast.Call, logs: set[str]) -> tuple[str, str, frozenset[str]] | None:
    target = call.func
    if not (isinstance(target, ast.Attribute) and target.attr in MARKS and isinstance(target.value, ast.Name)):
        return None
    if target.value.id not in logs:
        return None
    name = call.args[0]
    assert isinstance(name, ast.Constant) and isinstance(name.value, str), "the name of an event is written out"
    fields = {str(each.arg).rstrip("_") for each in call.keywords if each.arg != "traceback_of"}
    assert "None" not in fields, "the fields of an event are written out"
    return name.value, MARKS[target.attr], frozenset(fields)


def _in_code() -> dict[str, tuple[str, frozenset[str]]]:
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for package in ("filer", "leader", "mq"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text("utf-8")
            logs = set(re.findall(r"^(\w+) = EventLog\(__name__\)$", text, re.MULTILINE))
            calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)) if logs else ()
            for event in (_event_of(call, logs) for call in calls):
                if event is not None:
                    name, mark, fields = event
                    known_mark, known = found.get(name, (mark, fields))
                    assert mark == known_mark, f"{name} has one level"
                    assert (known ^ fields) <= {"error"}, f"{name} has the same fields wherever it is logged"
                    found[name] = mark, known | fields
    return found


def test_the_events_of_the_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = page.partition("\n### Events\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` ?([!?]*) \| ([^|]*) \|", section, re.MULTILINE)
    in_code = _in_code()
    assert {name: (mark, frozenset(re.findall(r"`(\w+)`", fields))) for name, mark, fields in rows} == in_code
    assert "transition_finished" in in_code


def test_the_packages_log_nothing_but_events() -> None:
    """A line of prose has no fields that a machine could look for."""
    for package in ("filer", "leader", "mq"):
        for path in (ROOT / package).rglob("*.py"):
            assert "logging.getLogger(__name__)" not in path.read_text("utf-8"), path
