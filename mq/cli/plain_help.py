"""Help without the words of Python: `--debug <bool>`, `<int range> [1<=x<=50]` and `{TOPIC}` are Typer's."""

from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
"""Settings of every command."""

_KINDS = {"int": "N", "float": "NUMBER", "str": "TEXT", "dir": "DIR", "file": "FILE", "path": "PATH"}


class _PlainHelp:
    """How a command and a group describe their parameters."""

    def format_help(self: Any, context: Any, formatter: Any) -> None:
        for parameter in self.get_params(context):
            _tell_plainly(parameter, context)
        super().format_help(context, formatter)  # type: ignore[misc]

    def collect_usage_pieces(self, context: Any) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(context)  # type: ignore[misc]
        return [piece[1:-1] if piece.startswith("{") else piece for piece in pieces]


class PlainCommand(_PlainHelp, TyperCommand):
    """A command with plain help."""


class PlainGroup(_PlainHelp, TyperGroup):
    """A group with plain help. If no command is near to a wrong word, the error names all of them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that `args` begin with. Raises `typer.TyperException` if there is none."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if error.message == f"No such command {args[0]!r}.":
                error.message = f"No such command {args[0]!r}: {ctx.command_path} has {', '.join(self.commands)}"
            raise


def _tell_plainly(parameter: TyperOption | TyperArgument, context: Any) -> None:
    """Let the help show values as people write them, and no type for a flag or for a named argument."""
    if isinstance(parameter, TyperArgument):
        parameter.display_type_rich = _no_type  # type: ignore[method-assign]
    elif parameter.metavar is None:
        parameter.metavar = "" if parameter.is_flag else _kind(parameter, context) + _bounds(parameter)
    # They are part of the metavar. Other code checks the values.
    parameter.min = parameter.max = None


def _no_type(ctx: Any) -> None:
    return None


def _kind(parameter: TyperOption, context: Any) -> str:
    name = parameter.display_type(context).strip("<>").removesuffix(" range")
    return _KINDS.get(name, name)


def _bounds(parameter: TyperOption) -> str:
    least, most = parameter.min, parameter.max
    if most is not None:
        return f" ({least} to {most})"
    # A count of less than one is not expected, if there has to be something.
    return " (0 or more)" if least == 0 else ""
