"""Reads a broker's settings from flags, environment variables and a file, in this order of precedence."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from filer.errors import InvalidConfig
from filer.nearest import unknown_name
from mq.base.settings import BrokerSettings

PREFIX = "BRAIDMQ_"
# Variables with the same prefix that are not settings of a broker.
OTHER_VARIABLES = frozenset({"BRAIDMQ_URL", "BRAIDMQ_CONFIG"})


def variable_of(field: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + field.upper()


def flag_of(field: str) -> str:
    """The command-line flag of a setting."""
    return "--" + field.replace("_", "-")


def read_settings(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    file: Mapping[str, Any],
    *,
    file_name: str = "the configuration file",
) -> BrokerSettings:
    """A flag overrides a variable, which overrides the file. Keys of `flags` and `file` are field names.

    An empty variable counts as not set. Raises `InvalidConfig`, which names the flag, variable or key: for a bad value,
    for a setting that has no effect without another, and for an unknown key or `BRAIDMQ_*` variable, with the nearest
    known name.
    """
    _refuse_unknown(environment, file, file_name)
    settings: dict[str, Any] = {}
    source: dict[str, str] = {}
    for field, value in file.items():
        settings[field], source[field] = value, f"{field} in {file_name}"
    named = {field: environment.get(variable_of(field)) for field in BrokerSettings.model_fields}
    _lay_over(settings, source, {field: value for field, value in named.items() if value}, variable_of)
    _lay_over(settings, source, flags, flag_of)
    try:
        loaded = BrokerSettings.model_validate(settings)
    except ValidationError as error:
        raise InvalidConfig(_explain(error, source)) from error
    _refuse_nonsense(loaded, source)
    return loaded


def _lay_over(
    settings: dict[str, Any], source: dict[str, str], layer: Mapping[str, str], name: Callable[[str], str]
) -> None:
    # `data` and `store` both name the store. The setting of the higher layer counts, whichever of the two it is.
    if "data" in layer and "store" not in layer:
        settings.pop("store", None)
    for field, value in layer.items():
        settings[field], source[field] = value, name(field)


def _refuse_unknown(environment: Mapping[str, str], file: Mapping[str, Any], file_name: str) -> None:
    fields = BrokerSettings.model_fields
    variables = {variable_of(field) for field in fields} | OTHER_VARIABLES
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in variables:
            raise InvalidConfig(unknown_name("environment variable", variable, variables))
    for key in file:
        if key not in fields:
            raise InvalidConfig(f"{file_name}: {unknown_name('setting', key, fields)}")


def _refuse_nonsense(settings: BrokerSettings, source: Mapping[str, str]) -> None:
    """Refuse settings that are valid one by one, but have no effect together."""
    if settings.zookeeper is None and "session_timeout" in source:
        raise InvalidConfig(
            f"{source['session_timeout']}: without --zookeeper a broker is on its own and has no session"
        )
    if settings.cors_origin == "*" and settings.authorizer == "loopback":
        raise InvalidConfig(
            f"{source['cors_origin']}: every page that somebody here opens could read and delete all topics; "
            "name the origins of the pages that may, or give --authorizer any"
        )
    if settings.zookeeper is not None and not {"store", "data"} & source.keys():
        raise InvalidConfig(
            f"{source['zookeeper']}: the brokers of a cluster share a store: "
            "name it by --store, or on a single machine by --data"
        )


def _explain(error: ValidationError, source: Mapping[str, str]) -> str:
    """The first error, in one line."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    given = " ".join(str(first["input"]).split())
    shown = given if len(given) <= 80 else given[:80] + "…"
    return f"{source[str(first['loc'][0])]}: {message[0].lower()}{message[1:]}, not {shown!r}"
