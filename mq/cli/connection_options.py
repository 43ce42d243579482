"""Options of every command that asks brokers: trust, and credentials. They may stand before or behind the command.

They become variables, which the client and programs that a command starts read.
"""

import inspect
import os
from collections.abc import Collection, Mapping
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from braidmq.defaults import (
    CA_VARIABLE,
    CLIENT_CERT_VARIABLE,
    CLIENT_KEY_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
)
from mq.cli.context_in_force import CONTEXT_VARIABLE, IN_FORCE
from mq.cli.options import lazily

_VARIABLES = {
    "token_file": TOKEN_FILE_VARIABLE,
    "ca": CA_VARIABLE,
    "client_cert": CLIENT_CERT_VARIABLE,
    "client_key": CLIENT_KEY_VARIABLE,
}


def _file_option(name: str, text: str) -> Any:
    help_line = f"{text} \\[env var: {_VARIABLES[name]}]"
    return typer.Option(f"--{name.replace('_', '-')}", metavar="FILE", help=help_line, show_default=False)


TokenFile = Annotated[
    str | None,
    _file_option("token_file", f"File of the token to send to brokers, instead of the one in {TOKEN_VARIABLE}."),
]
Ca = Annotated[
    str | None,
    _file_option("ca", "File of the certificates by which https brokers are trusted, instead of the system's."),
]
ClientCert = Annotated[
    str | None, _file_option("client_cert", "File of the certificate to show to brokers that ask for one.")
]
ClientKey = Annotated[str | None, _file_option("client_key", "File of its key; by default it stands in the same file.")]
_FILES: dict[str, Any] = {"token_file": TokenFile, "ca": Ca, "client_cert": ClientCert, "client_key": ClientKey}
_CONTEXT_HELP = f"Go by this context (mq context), instead of the one in use. \\[env var: {CONTEXT_VARIABLE}]"


class GivenBefore:
    """The options before the command, until it is known whether others stand behind it."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.variables: Collection[str] = ()

    def take(self, url: str | None, files: Mapping[str, str | None]) -> None:
        """Put them in force."""
        self.url = url
        self.variables = [_VARIABLES[name] for name, value in files.items() if value is not None]
        set_files(files)


GIVEN_BEFORE = GivenBefore()
"""The options before the command, of this process."""


def set_files(files: Mapping[str, str | None]) -> None:
    """Put the given options in force, and remove other values that they replace."""
    if files.get("client_cert") is not None:
        # A key that was named elsewhere belongs to another certificate.
        os.environ.pop(CLIENT_KEY_VARIABLE, None)
    if files.get("token_file") is not None:
        os.environ.pop(TOKEN_VARIABLE, None)
    for name, value in files.items():
        if value is not None:
            os.environ[_VARIABLES[name]] = value


def go_by(context_name: str | None) -> None:
    """Put a context in force for a command, beside the options before it. Raises `InvalidInput` and `OSError`."""
    IN_FORCE.apply(context_name, given=GIVEN_BEFORE.variables)
    if GIVEN_BEFORE.url is not None:
        IN_FORCE.leave_unless_for(GIVEN_BEFORE.url)
        os.environ[URL_VARIABLE] = GIVEN_BEFORE.url


def with_connection_options(function: Any) -> Any:
    """Add these options to a command that takes `--url`. Leaves others unchanged."""
    if not inspect.isfunction(function) or "url" not in inspect.signature(function).parameters:
        return function

    @wraps(function)
    def command(*given: Any, **named: Any) -> Any:
        named.pop("context_name")
        IN_FORCE.leave_unless_for(named["url"])
        set_files({option: named.pop(option) for option in _VARIABLES})
        return function(*given, **named)

    own, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
    added = _FILES | {"context_name": _context_option()}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in added.items()
    ]
    made: Any = command
    made.__signature__ = own.replace(parameters=[*own.parameters.values(), *parameters])
    made.__annotations__ = {**hints, **added}
    return made


def _context_option() -> Any:
    # Eager: its variables must be set when the address is looked up.
    return Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help=_CONTEXT_HELP,
            show_default=False,
            is_eager=True,
            callback=_go_by_another,
            autocompletion=lazily("complete_context"),
        ),
    ]


def _go_by_another(context: typer.Context, name: str | None) -> str | None:
    """Put a context that is named behind the command in force, in place of another one."""
    if name is not None and not context.resilient_parsing:
        IN_FORCE.leave()
        go_by(name)
    return name
