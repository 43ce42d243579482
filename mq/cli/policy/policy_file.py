"""A policy as a file that users write: TOML, or JSON as the interface has it."""

import json
import sys
import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from filer.errors import InvalidInput
from filer.nearest import unknown_name

SECTIONS = ("grants", "revoked_tokens", "revoked_principals", "quotas")
_TIMES = ("until", "before")
_VERSION = "version"
MOST = 2**53


def read_policy_file(path: str) -> str:
    """The text of a file, or of stdin for `-`. Raises `InvalidInput` for data that is no text, and `OSError`."""
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"it is no text in UTF-8: {error.reason} at byte {error.start}") from error


def parse_policy_file(text: str) -> dict[str, Any]:
    """The sections of a file, as the interface has them, and `version` if it names one. Raises `InvalidInput`."""
    is_json = text.lstrip().startswith("{")
    try:
        found = json.loads(text) if is_json else tomllib.loads(text)
    except ValueError as error:
        if _is_json_list(text):
            raise InvalidInput("it is a list: a policy is an object with sections") from error
        raise InvalidInput(f"it is {'no JSON' if is_json else 'neither TOML nor JSON'}: {error}") from error
    # `mq policy show --json` prints it.
    found.pop("etag", None)
    for name, value in found.items():
        if name not in (_VERSION, *SECTIONS):
            raise InvalidInput(unknown_name("section", name, (_VERSION, *SECTIONS)))
        if isinstance(value, dict):
            raise InvalidInput(f"{name} is a list: write [[{name}]]")
    _check_numbers(found)
    return {name: _plain(value) for name, value in found.items()}


def policy_text(version: int, sections: Mapping[str, list[dict[str, Any]]]) -> str:
    """A policy as TOML."""
    blocks = [f"{_VERSION} = {version}"]
    for name in SECTIONS:
        blocks += [f"[[{name}]]\n" + "\n".join(_line(*field) for field in each.items()) for each in sections[name]]
    return "\n\n".join(blocks)


def changes(before: Mapping[str, list[Any]], after: Mapping[str, list[Any]]) -> list[str]:
    """A line for each entry that is gone, and for each that is new."""
    lines = []
    for name in SECTIONS:
        lines += [f"- {name}: {_short(each)}" for each in before[name] if each not in after[name]]
        lines += [f"+ {name}: {_short(each)}" for each in after[name] if each not in before[name]]
    return lines


def _is_json_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except ValueError:
        return False


def _check_numbers(value: Any) -> None:
    """Raise `InvalidInput` for a whole number on which readers of JSON do not agree."""
    if isinstance(value, int) and abs(value) > MOST:
        raise InvalidInput(f"{value:.3g} is too large: whole numbers are up to 2^53")
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_numbers(each)


def _short(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {' '.join(v) if isinstance(v, list) else v}" for name, v in entry.items())


def _line(field: str, value: Any) -> str:
    return f"{field} = {value if field in _TIMES else json.dumps(value, ensure_ascii=False)}"


def _plain(value: Any) -> Any:
    """The value with TOML's times as text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value
