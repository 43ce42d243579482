"""The commands of `mq`, each imported when it is used: most of them need only a part of the product."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

_PLACES = {
    "serve": "mq.cli.server.serve:serve",
    "local": "mq.cli.server.local:local",
    "config": "mq.cli.server.config:app",
    "publish": "mq.cli.publishing.publish:publish",
    "subscribe": "mq.cli.reading.subscribe:subscribe",
    "bench": "mq.cli.diagnosis.bench:bench",
    "doctor": "mq.cli.diagnosis.doctor:doctor",
    "verify": "mq.cli.diagnosis.verify:verify",
    "topic": "mq.cli.topics.topic:app",
    "files": "mq.cli.reading.files:app",
    "cluster": "mq.cli.server.cluster:app",
    "pipeline": "mq.cli.pipeline:app",
}
"""Where each command is, in the order of the help: a function, or the app of a group of commands."""


class Commands(TyperGroup):
    """All commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # Typer reads them only: nothing is added to this group.
        self.commands = cast("MutableMapping[str, Any]", _Imported(_PLACES))


class _Imported(Mapping[str, Any]):
    """The commands by their names. Each is imported when it is looked at."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._commands: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        if name not in self._commands:
            module, _, attribute = self._places[name].partition(":")
            self._commands[name] = _command(name, getattr(import_module(module), attribute))
        return self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _command(name: str, found: Any) -> Any:
    if isinstance(found, typer.Typer):
        group = typer.main.get_command(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)
