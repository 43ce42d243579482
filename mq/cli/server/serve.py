"""`mq serve`: run a broker. Each setting is an option, an environment variable and a key of a TOML file."""

import inspect
import logging
import os
import sys
import tomllib
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from mq.base.read_settings import flag_of, read_settings, variable_of
from mq.base.settings import BrokerSettings
from mq.cli.failures import CommandFailed

_METAVARS: dict[type, str] = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
# The info messages of libraries repeat what is logged elsewhere; kazoo warns at every attempt to connect.
_LIBRARY_LEVELS = {
    "uvicorn": "WARNING",
    "aiobotocore": "WARNING",
    "botocore": "WARNING",
    "httpx": "WARNING",
    "kazoo": "ERROR",
}
LogLevel = Literal["debug", "info", "warning", "error"]


def _serve(config: Path | None, quiet: bool, log_level: LogLevel, **flags: str | None) -> None:
    """Run a broker: alone or in a cluster, on a local directory or an object store.

    A flag overrides its BRAIDMQ_* variable, a variable overrides the file given by --config, the file the default.
    """
    given = {field: value for field, value in flags.items() if value is not None}
    file = _read_toml(config) if config is not None else {}
    settings = read_settings(given, os.environ, file, file_name=str(config))
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for library, level in _LIBRARY_LEVELS.items():
        logging.getLogger(library).setLevel("DEBUG" if log_level == "debug" else level)

    # Imported here, so that the other commands start without the server's modules.
    from mq.cli.server.start_message import start_message
    from mq.process.server import Serving
    from mq.process.server import serve as serve_broker

    def on_ready(serving: Serving) -> None:
        if not quiet:
            sys.stdout.write(start_message(serving))
            sys.stdout.flush()

    serve_broker(settings, on_ready)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CommandFailed(f"cannot read the configuration file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path} is not TOML: {error}") from error


def _option(field: str, info: FieldInfo) -> inspect.Parameter:
    """The flag of a setting. It takes text: `read_settings` checks the values of all layers in the same way."""
    option = typer.Option(
        flag_of(field),
        metavar=_metavar(info.annotation),
        help=f"{info.description} ({_default(info)}{variable_of(field)})",
    )
    annotation = Annotated[str | None, option]
    return inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _default(info: FieldInfo) -> str:
    return "" if info.default in (None, "") else f"{info.default}; "


def _metavar(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return _metavar(next(each for each in get_args(annotation) if each is not type(None)))
    return _METAVARS[annotation]


def _own_options() -> list[inspect.Parameter]:
    config = typer.Option("--config", envvar="BRAIDMQ_CONFIG", metavar="FILE", help="Settings from a TOML file.")
    quiet = typer.Option("--quiet", help="Print nothing on start.")
    level = typer.Option("--log-level", help="Lowest level that is logged to stderr.")
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter("config", kind, default=None, annotation=Annotated[Path | None, config]),
        inspect.Parameter("quiet", kind, default=False, annotation=Annotated[bool, quiet]),
        inspect.Parameter("log_level", kind, default="info", annotation=Annotated[LogLevel, level]),
    ]


def _with_options(function: Any) -> Any:
    """Give the function a signature from which Typer makes one option per setting, and our own options."""
    parameters = [
        *(_option(field, info) for field, info in BrokerSettings.model_fields.items()),
        *_own_options(),
    ]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


serve = _with_options(_serve)
