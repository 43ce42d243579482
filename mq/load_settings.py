"""The broker's settings from flags, environment and file, each layer above the next; a pure function of mappings."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from filer.errors import InvalidConfig
from filer.nearest import unknown_name
from mq.settings import BrokerSettings

PREFIX = "BRAIDMQ_"
# Variables of the same prefix that are no settings of a broker.
OTHER_VARIABLES = frozenset({"BRAIDMQ_URL", "BRAIDMQ_CONFIG"})


def variable_of(field: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + field.upper()


def flag_of(field: str) -> str:
    """The command-line flag of a setting."""
    return "--" + field.replace("_", "-")


def load_settings(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    file: Mapping[str, Any],
    *,
    file_name: str = "the configuration file",
) -> BrokerSettings:
    """Flag over variable over file over default. Keys of `flags` and `file` are field names.

    An empty variable counts as not set. Raises `InvalidConfig` that names the flag, variable or key at fault:
    for a bad value, for one that makes no sense without another, and for a key or a `BRAIDMQ_*` variable that is
    unknown, with the nearest name.
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
    # `data` and `store` answer one question: the higher layer's answer counts, whichever of the two it uses.
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
    """Settings that are fine one by one; whoever gives them means something that will not happen."""
    if settings.zookeeper is None and "session_timeout" in source:
        raise InvalidConfig(
            f"{source['session_timeout']}: without --zookeeper a broker is on its own and has no session"
        )
    if settings.zookeeper is not None and not {"store", "data"} & source.keys():
        raise InvalidConfig(
            f"{source['zookeeper']}: the brokers of a cluster share a store: "
            "name it by --store, or on a single machine by --data"
        )


def _explain(error: ValidationError, source: Mapping[str, str]) -> str:
    """The first thing wrong, in one line."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    given = " ".join(str(first["input"]).split())
    shown = given if len(given) <= 80 else given[:80] + "…"
    return f"{source[str(first['loc'][0])]}: {message[0].lower()}{message[1:]}, not {shown!r}"
