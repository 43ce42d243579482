"""A policy as a file that people write: TOML, or JSON as the interface has it."""

import json
import tomllib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from filer.errors import InvalidInput
from filer.nearest import unknown_name

SECTIONS = ("grants", "revoked_tokens", "revoked_principals", "quotas")
_TIMES = ("until", "before")
_VERSION = "version"


def parse_policy_file(text: str) -> dict[str, Any]:
    """The sections that a file has, as the interface has them, and `version` if it names one. Raises `InvalidInput`."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:
        raise InvalidInput(f"it is neither TOML nor JSON: {error}") from error
    for name in found:
        if name not in (_VERSION, *SECTIONS):
            raise InvalidInput(unknown_name("section", name, (_VERSION, *SECTIONS)))
    return {name: _plain(value) for name, value in found.items()}


def policy_text(version: int, sections: Mapping[str, list[dict[str, Any]]]) -> str:
    """A policy as TOML."""
    blocks = [f"{_VERSION} = {version}"]
    for name in SECTIONS:
        blocks += [f"[[{name}]]\n" + "\n".join(_line(*field) for field in each.items()) for each in sections[name]]
    return "\n\n".join(blocks)


def changes(before: Mapping[str, list[Any]], after: Mapping[str, list[Any]]) -> list[str]:
    """A line for each entry that is there no more, and for each that is new."""
    lines = []
    for name in SECTIONS:
        lines += [f"- {name}: {_short(each)}" for each in before[name] if each not in after[name]]
        lines += [f"+ {name}: {_short(each)}" for each in after[name] if each not in before[name]]
    return lines


def _short(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {' '.join(v) if isinstance(v, list) else v}" for name, v in entry.items())


def _line(field: str, value: Any) -> str:
    return f"{field} = {value if field in _TIMES else json.dumps(value, ensure_ascii=False)}"


def _plain(value: Any) -> Any:
    """What TOML has as times, as text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value
