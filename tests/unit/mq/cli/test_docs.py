"""docs/cli.md names every command, option and setting."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from mq.base.read_settings import flag_of
from mq.base.settings import BrokerSettings, setting_text
from mq.cli.command_line import app

DOCUMENT = (Path(__file__).parents[4] / "docs" / "cli.md").read_text("utf-8")


def commands(group: Any, *path: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with its long options."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            options = [word for each in command.params for word in each.opts if word.startswith("--")]
            yield " ".join((*path, name)), options


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(("command", "options"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_and_option_is_described(command: str, options: list[str]) -> None:
    assert f"mq {command}" in DOCUMENT
    assert [option for option in options if option != "--help" and option not in DOCUMENT] == []


@pytest.mark.parametrize("field", BrokerSettings.model_fields)
def test_the_table_of_settings_is_true(field: str) -> None:
    info = BrokerSettings.model_fields[field]
    text = setting_text(field, info.default)
    default = f"`{text}`" if text else ""
    assert f"| `{flag_of(field)}` | {default} | {info.description} |" in DOCUMENT
