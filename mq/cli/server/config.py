"""`mq config show`: the settings that `mq serve` would have, and the origin of each."""

import inspect
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mq.base.read_settings import ResolvedSettings
from mq.base.settings import setting_text
from mq.cli.output import print_json, print_table
from mq.cli.server.settings_options import settings_of, with_settings_options

_FORMAT = typer.Option("--format", help="table: for people. json: one document.")
_JSON = typer.Option("--json", help="The same as --format json.")
_OWN = [
    inspect.Parameter(
        "form", inspect.Parameter.KEYWORD_ONLY, default="table", annotation=Annotated[Literal["table", "json"], _FORMAT]
    ),
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, _JSON]),
]
# The password of an address, as in http://name:password@host.
_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_MASK = "***"


def _show(config: Path | None, quiet: bool, form: str, as_json: bool, **flags: str | None) -> None:
    """Show each setting of `mq serve` with the same options: what is in force, and where it came from.

    `mq serve` refuses what this refuses. Passwords in addresses are masked.
    """
    found = settings_of(flags, os.environ, config)
    if as_json or form == "json":
        print_json({field: _facts(found, field, value) for field, value in found.settings})
        return
    rows = ((field, _masked(setting_text(field, value)), _origin(found, field)) for field, value in found.settings)
    print_table(("setting", "value", "from"), rows)


def _facts(found: ResolvedSettings, field: str, value: Any) -> dict[str, object]:
    origin = found.origins.get(field)
    shown = _masked(str(value)) if isinstance(value, str | Path) else value
    return {
        "value": shown,
        "layer": "default" if origin is None else origin.layer,
        "name": None if origin is None else origin.name,
    }


def _origin(found: ResolvedSettings, field: str) -> str:
    origin = found.origins.get(field)
    return "default" if origin is None else f"{origin.layer}: {origin.name}"


def _masked(text: str) -> str:
    return _PASSWORD.sub(rf"\1{_MASK}@", text)


show = with_settings_options(_show, _OWN)
