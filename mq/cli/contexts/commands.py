"""`mq context add`, `use`, `list`, `show` and `remove`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from braidmq.defaults import URL_VARIABLE
from filer.errors import InvalidInput
from mq.cli.context_file import Connection, checked_url, contexts_path, read_contexts, write_contexts
from mq.cli.context_in_force import chosen_context
from mq.cli.failures import say
from mq.cli.options import Json, lazily
from mq.cli.output import print_json, print_lines, print_table

_Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of the context.", show_default=False, autocompletion=lazily("complete_context")
    ),
]
_NameIfGiven = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="Name of the context.", show_default=False, autocompletion=lazily("complete_context")
    ),
]


def add(
    name: _Name,
    address: Annotated[
        str,
        typer.Option(
            "--url", metavar="URL", help="Address of a broker, or several separated by commas.", show_default=False
        ),
    ],
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="File that has the token.")
    ] = None,
    ca: Annotated[
        str | None, typer.Option("--ca", metavar="FILE", help="File of the certificates by which brokers are trusted.")
    ] = None,
    client_cert: Annotated[
        str | None, typer.Option("--client-cert", metavar="FILE", help="File of the certificate to show.")
    ] = None,
    client_key: Annotated[
        str | None,
        typer.Option("--client-key", metavar="FILE", help="File of its key; by default it stands in the same file."),
    ] = None,
    use_it: Annotated[bool, typer.Option("--use", help="Have commands go by it from now on.")] = False,
) -> None:
    """Add a context, or replace the one of that name."""
    if client_key is not None and client_cert is None:
        raise InvalidInput("--client-key is of no use without --client-cert: give both")
    files = {"token_file": token_file, "ca": ca, "client_cert": client_cert, "client_key": client_key}
    connection = Connection(checked_url(address), **{key: _absolute(key, file) for key, file in files.items()})
    path = contexts_path()
    before = read_contexts(path)
    contexts = before.with_one(name, connection)
    write_contexts(path, contexts.using(name) if use_it else contexts)
    done = "is replaced" if name in before.by_name else "is added"
    print_lines(f"context {name} {done}{', and in use' if use_it else ''}")


def use(
    name: _NameIfGiven = None,
    none: Annotated[bool, typer.Option("--none", help="Go by no context from now on.")] = False,
) -> None:
    """Have commands go by this context from now on."""
    if (name is None) != none:
        raise InvalidInput("give the name of a context, or --none")
    path = contexts_path()
    write_contexts(path, read_contexts(path).using(name))
    print_lines("no context is in use" if name is None else f"context {name} is in use")
    _tell_of_variables()


def list_contexts(as_json: Json = False) -> None:
    """List the contexts, and which one is in use."""
    contexts, used = read_contexts(contexts_path()), _used()
    rows = [(name, name == used, connection) for name, connection in sorted(contexts.by_name.items())]
    if as_json:
        print_json([{"context": name, "in_use": is_used, **each.given()} for name, is_used, each in rows])
        return
    print_table(
        ("context", "in use", "url", "token", "certificate"),
        ((name, "*" if is_used else "", each.url, each.token_file, each.client_cert) for name, is_used, each in rows),
    )
    _tell_of_variables()


def show(name: _NameIfGiven = None, as_json: Json = False) -> None:
    """Show what a context has: by default that which is in use."""
    name = name or _used()
    if name is None:
        raise InvalidInput("no context is in use: name one, as mq context list shows them")
    found = read_contexts(contexts_path()).find(name)
    if as_json:
        print_json({"context": name, "in_use": name == _used(), **found.given()})
        return
    print_lines(
        f"{'context':<12} {name}", *(f"{key.replace('_', ' '):<12} {value}" for key, value in found.given().items())
    )


def remove(name: _Name) -> None:
    """Remove a context. The files that it names stay."""
    path = contexts_path()
    before = read_contexts(path)
    write_contexts(path, before.without(name))
    print_lines(f"context {name} is removed{': no context is in use' if before.current == name else ''}")


def _used() -> str | None:
    chosen = chosen_context(None)
    return None if chosen is None else chosen.name


def _tell_of_variables() -> None:
    if os.environ.get(URL_VARIABLE):
        say(f"{URL_VARIABLE} is set: it comes before the context in use")


def _absolute(key: str, file: str | None) -> str | None:
    """The file's whole name: a context is used from anywhere. Raises `InvalidInput` if there is no such file."""
    if file is None:
        return None
    path = Path(file).absolute()
    if not path.is_file():
        raise InvalidInput(f"--{key.replace('_', '-')}: there is no file {str(path)!r}")
    return str(path)
