"""The options of every command that asks brokers: whom it trusts, and who it is."""

import inspect
import os
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from braidmq.defaults import CA_VARIABLE, CLIENT_CERT_VARIABLE, CLIENT_KEY_VARIABLE
from mq.cli.context_in_force import IN_FORCE

_VARIABLES = {"ca": CA_VARIABLE, "client_cert": CLIENT_CERT_VARIABLE, "client_key": CLIENT_KEY_VARIABLE}
_HELP = {
    "ca": "File of the certificates by which https brokers are trusted, instead of the system's.",
    "client_cert": "File of the certificate to show to brokers that ask for one.",
    "client_key": "File of its key; by default it stands in the same file.",
}


def with_tls_options(function: Any) -> Any:
    """A command that takes `--url` takes these too. Others are left as they are.

    The options become variables: the client reads them, and so do programs that the command starts.
    """
    if not inspect.isfunction(function) or "url" not in inspect.signature(function).parameters:
        return function

    @wraps(function)
    def command(*given: Any, **named: Any) -> Any:
        IN_FORCE.leave_unless_for(named["url"])
        if named["client_cert"] is not None:
            # A key that was named elsewhere is another certificate's.
            os.environ.pop(CLIENT_KEY_VARIABLE, None)
        for option, variable in _VARIABLES.items():
            value = named.pop(option)
            if value is not None:
                os.environ[variable] = value
        return function(*given, **named)

    own, hints = inspect.signature(function), get_type_hints(function, include_extras=True)
    of_tls = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name))
        for name in _VARIABLES
    ]
    made: Any = command
    made.__signature__ = own.replace(parameters=[*own.parameters.values(), *of_tls])
    made.__annotations__ = {**hints, **{each.name: each.annotation for each in of_tls}}
    return made


def _annotation(name: str) -> Any:
    flag = f"--{name.replace('_', '-')}"
    help_line = f"{_HELP[name]} \\[env var: {_VARIABLES[name]}]"
    return Annotated[str | None, typer.Option(flag, metavar="FILE", help=help_line, show_default=False)]
