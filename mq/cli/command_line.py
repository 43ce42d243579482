"""The command line: all commands, and the one place where errors become messages and exit codes."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from braidmq.defaults import URL_VARIABLE
from mq.cli.commands import COMMANDS, CONTEXT, TALK_TO_NONE
from mq.cli.connection_options import GIVEN_BEFORE, Ca, ClientCert, ClientKey, TokenFile, go_by
from mq.cli.context_in_force import CONTEXT_VARIABLE
from mq.cli.failures import report
from mq.cli.lazy_group import lazy_group
from mq.cli.options import lazily
from mq.cli.plain_help import HELP_OPTIONS

app = typer.Typer(
    name="mq",
    cls=lazy_group(COMMANDS),
    help="BraidMQ: a message queue whose log is a table.",
    no_args_is_help=True,
    add_completion=True,
    context_settings=HELP_OPTIONS,
)


@dataclass(slots=True)
class Invocation:
    """The command line, and the options before the command."""

    arguments: Sequence[str]
    debug: bool = False


def _print_version(wanted: bool) -> None:
    if wanted:
        # Imported here: it searches all installed packages, and no other command needs that.
        from mq.base.version import VERSION

        typer.echo(f"mq {VERSION}")
        raise typer.Exit


@app.callback()
def _before_command(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help=f"Address of a broker, or several separated by commas. \\[env var: {URL_VARIABLE}]",
            show_default=False,
        ),
    ] = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    client_cert: ClientCert = None,
    client_key: ClientKey = None,
    context_name: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Go by this context (mq context). Default: BRAIDMQ_CONTEXT, or the one in use.",
            autocompletion=lazily("complete_context"),
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj.debug = debug
    files = {"token_file": token_file, "ca": ca, "client_cert": client_cert, "client_key": client_key}
    GIVEN_BEFORE.take(url, files)
    if context.invoked_subcommand not in TALK_TO_NONE:
        go_by(context_name)
    elif context_name is not None and context.invoked_subcommand == CONTEXT:
        os.environ[CONTEXT_VARIABLE] = context_name
    if debug:
        from braidmq.short_tracebacks import whole_tracebacks

        context.with_resource(whole_tracebacks())


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Raises nothing but the interpreter's own `SystemExit`."""
    invocation = Invocation(arguments)
    command = typer.main.get_command(app)
    try:
        # Not standalone: Typer prints an error as a box of several lines.
        code = command.main(list(arguments), prog_name="mq", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
    except Exception as error:
        if invocation.debug and not isinstance(error, typer.TyperException | typer.Abort):
            raise
        return report(error)
    return code if isinstance(code, int) else 0
