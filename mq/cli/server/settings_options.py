"""One option for each setting of a broker, for the commands that read settings: serve, config show, healthcheck."""

import inspect
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from mq.base.read_settings import ResolvedSettings, flag_of, resolve_settings, variable_of
from mq.base.settings import BrokerSettings, quantity_of, setting_text
from mq.cli.failures import CommandFailed

_METAVARS: dict[type, str] = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH", bool: ""}


def with_settings_options(function: Any, own: Sequence[inspect.Parameter] = ()) -> Any:
    """Give the function a signature from which Typer makes one option per setting, those of `mq serve`, and `own`."""
    settings = (_option(field, info) for field, info in BrokerSettings.model_fields.items())
    parameters = [*settings, *_serve_options(), *own]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def settings_of(
    flags: Mapping[str, str | bool | None], environment: Mapping[str, str], config: Path | None
) -> ResolvedSettings:
    """The settings of a command line. A flag of None is not given.

    Raises `CommandFailed` if the file cannot be read, and as `resolve_settings`.
    """
    given = {field: value for field, value in flags.items() if value is not None}
    file = _read_toml(config) if config is not None else {}
    return resolve_settings(given, environment, file, file_name=str(config))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CommandFailed(f"cannot read the configuration file {path}: {error.strerror}") from error
    except ValueError as error:  # also for integers without end, which are no TOMLDecodeError
        raise CommandFailed(f"{path} is not TOML: {error}") from error


def _option(field: str, info: FieldInfo) -> inspect.Parameter:
    """The flag of a setting. It takes text: `resolve_settings` checks the values of all layers in the same way."""
    option = typer.Option(
        flag_of(field),
        metavar=_metavar(field, info),
        help=f"{info.description} {_escaped(f'[env var: {variable_of(field)}]')}{_default(field, info)}",
    )
    # A setting that is on or off has a flag without a value.
    kind: Any = bool | None if info.annotation is bool else str | None
    annotation: Any = Annotated[kind, option]
    return inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _default(field: str, info: FieldInfo) -> str:
    text = setting_text(field, info.default)
    return f" {_escaped(f'[default: {text}]')}" if text else ""


def _escaped(text: str) -> str:
    """Text with brackets, which are markup in help."""
    return text.replace("[", "\\[")


def _metavar(field: str, info: FieldInfo) -> str:
    quantity = quantity_of(field)
    return _metavar_of_type(info.annotation) if quantity is None else quantity.metavar


def _metavar_of_type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return _metavar_of_type(next(each for each in get_args(annotation) if each is not type(None)))
    return _METAVARS[annotation]


def _serve_options() -> list[inspect.Parameter]:
    config = typer.Option("--config", envvar="BRAIDMQ_CONFIG", metavar="FILE", help="Settings from a TOML file.")
    quiet = typer.Option("--quiet", help="Print nothing on start.")
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter("config", kind, default=None, annotation=Annotated[Path | None, config]),
        inspect.Parameter("quiet", kind, default=False, annotation=Annotated[bool, quiet]),
    ]
