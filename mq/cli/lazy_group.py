"""A group of commands that imports a command when it is used, and needs none of them to list them."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from mq.cli.connection_options import with_connection_options
from mq.cli.plain_help import HELP_OPTIONS, PlainCommand, PlainGroup


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is: `module:function`, or the app of commands. `summary` is the first line of its help."""

    where: str
    summary: str


@dataclass(frozen=True, slots=True)
class Group:
    """Commands behind one name, in the order of the help."""

    summary: str
    commands: Mapping[str, "Place | Group"]


def lazy_group(commands: Mapping[str, Place | Group]) -> type[TyperGroup]:
    """The class of a group of these commands, for `typer.Typer(cls=…)`."""

    class LazyGroup(PlainGroup):
        """A group whose help and completion go by the summaries."""

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            # Typer only reads them: nothing is added to this group.
            self.commands = cast("MutableMapping[str, Any]", _Imported(commands))

        def format_help(self, *arguments: Any) -> None:
            _listed(self, super().format_help, arguments)

        def shell_complete(self, *arguments: Any) -> Any:
            return _listed(self, super().shell_complete, arguments)

    return LazyGroup


def _listed(group: Any, function: Any, arguments: Any) -> Any:
    """Call a function that lists the commands of a group."""
    group.commands.is_listed = True
    try:
        return function(*arguments)
    finally:
        group.commands.is_listed = False


class _Imported(Mapping[str, Any]):
    """The commands by their names. Each is imported when it is looked up, and none while they are listed."""

    def __init__(self, places: Mapping[str, Place | Group]) -> None:
        self._places = places
        self._commands: dict[str, TyperCommand | TyperGroup] = {}
        self.is_listed = False

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        place = self._places[name]
        if self.is_listed:
            return TyperCommand(name, help=place.summary)
        if name not in self._commands:
            self._commands[name] = _command(name, place)
        return self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _command(name: str, place: Place | Group) -> Any:
    if isinstance(place, Group):
        group = typer.Typer(
            name=name,
            cls=lazy_group(place.commands),
            help=place.summary,
            no_args_is_help=True,
            add_completion=False,
            context_settings=HELP_OPTIONS,
        )
        group.callback()(_nothing)
        return typer.main.get_command(group)
    module, _, attribute = place.where.partition(":")
    found = with_connection_options(getattr(import_module(module), attribute))
    if isinstance(found, typer.Typer):
        command = typer.main.get_command(found)
        command.name = name
        return command
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=PlainCommand, context_settings=HELP_OPTIONS)(found)
    return typer.main.get_command(alone)


def _nothing() -> None:
    """Do nothing: a group has no action of its own."""
