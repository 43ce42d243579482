"""Reads a broker's settings from flags, environment variables and a file, in this order of precedence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from filer.errors import InvalidConfig
from filer.nearest import unknown_name
from filer.plain_messages import plain_message
from mq.base.exposure import why_exposed
from mq.base.peer_listener_settings import refuse_half_peer_listener
from mq.base.settings import TOKEN_SOURCES, BrokerSettings
from mq.base.trace_environment import check_trace_environment

Layer = Literal["file", "environment", "command line"]
PREFIX = "BRAIDMQ_"
# Variables with the same prefix that are not settings of a broker.
_OF_CLIENTS = ("URL", "CONTEXT", "CA", "CLIENT_CERT", "CLIENT_KEY", "TOKEN", "TOKEN_FILE")
# Those that contain a secret themselves: a flag would show it to all users of the machine.
_SECRETS = ("BRAIDMQ_PEER_KEYS_TEXT", "BRAIDMQ_ZOOKEEPER_AUTH_TEXT")
OTHER_VARIABLES = frozenset({"BRAIDMQ_CONFIG", *_SECRETS, *(f"BRAIDMQ_{name}" for name in _OF_CLIENTS)})


def variable_of(field: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + field.upper()


def flag_of(field: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + field.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the value of a setting came from: the layer, and the name that it has there."""

    layer: Layer
    name: str


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """The settings in force, and the origin of each that is not the default."""

    settings: BrokerSettings
    origins: Mapping[str, Origin]


def read_settings(
    flags: Mapping[str, str | bool],
    environment: Mapping[str, str],
    file: Mapping[str, Any],
    *,
    file_name: str = "the configuration file",
) -> BrokerSettings:
    """Return the settings in force, as `resolve_settings` finds them."""
    return resolve_settings(flags, environment, file, file_name=file_name).settings


def resolve_settings(
    flags: Mapping[str, str | bool],
    environment: Mapping[str, str],
    file: Mapping[str, Any],
    *,
    file_name: str = "the configuration file",
) -> ResolvedSettings:
    """Resolve the settings. A flag overrides a variable, which overrides the file; `flags` and `file` have field names.

    An empty variable counts as not set. Raises `InvalidConfig`, which names the flag, variable or key: for a bad value,
    for a setting that has no effect without another, for a broker that is open to a network without a setting that
    allows it, for traces that cannot be sent, and for an unknown key or `BRAIDMQ_*` variable, with the nearest known
    name.
    """
    _refuse_unknown(environment, file, file_name)
    named = {field: environment.get(variable_of(field)) for field in BrokerSettings.model_fields}
    layers = _Layers()
    layers.lay_over(file, "file", lambda field: f"{field} in {file_name}")
    layers.lay_over({field: value for field, value in named.items() if value}, "environment", variable_of)
    layers.lay_over(flags, "command line", flag_of)
    try:
        loaded = BrokerSettings.model_validate(layers.values)
    except ValidationError as error:
        raise InvalidConfig(_explain(error, layers.origins)) from error
    _refuse_nonsense(loaded, layers.origins)
    _refuse_half_tls(loaded, layers.origins)
    refuse_half_peer_listener(loaded, {field: origin.name for field, origin in layers.origins.items()})
    _refuse_half_keys(loaded, layers.origins, environment)
    _refuse_half_zookeeper(loaded, layers.origins, environment)
    _refuse_exposure(loaded, layers.origins)
    if loaded.tracing != "off":
        check_trace_environment(environment, layers.origins["tracing"].name)
    return ResolvedSettings(loaded, layers.origins)


class _Layers:
    """The values of several layers, each laid over those before."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}

    def lay_over(self, layer: Mapping[str, Any], kind: Layer, name: Callable[[str], str]) -> None:
        """Let the values of a layer replace those of lower ones."""
        # `data` and `store` both name the store. The setting of the higher layer counts, whichever of the two it is.
        if "data" in layer and "store" not in layer:
            self.values.pop("store", None)
            self.origins.pop("store", None)
        for field, value in layer.items():
            self.values[field], self.origins[field] = value, Origin(kind, name(field))


def _refuse_unknown(environment: Mapping[str, str], file: Mapping[str, Any], file_name: str) -> None:
    fields = BrokerSettings.model_fields
    variables = {variable_of(field) for field in fields} | OTHER_VARIABLES
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in variables:
            raise InvalidConfig(unknown_name("environment variable", variable, variables))
    for key in file:
        if key not in fields:
            raise InvalidConfig(f"{file_name}: {unknown_name('setting', key, fields)}")


def _refuse_nonsense(settings: BrokerSettings, origins: Mapping[str, Origin]) -> None:
    """Refuse settings that are valid one by one, but have no effect together."""
    of_clusters = {"session_timeout": "has no session", "refused_timeout": "nobody fails it over"}
    for field, lacks in of_clusters.items():
        if settings.zookeeper is None and field in origins:
            raise InvalidConfig(f"{origins[field].name}: without --zookeeper a broker is on its own and {lacks}")
    if settings.cors_origin == "*" and settings.trusts_this_machine:
        raise InvalidConfig(
            f"{origins['cors_origin'].name}: every page that somebody here opens could read and delete all topics; "
            "name the origins of the pages that may, or give --authorizer any"
        )
    if settings.authorizer == "tokens" and not any(getattr(settings, field) for field in TOKEN_SOURCES):
        raise InvalidConfig(
            f"{origins['authorizer'].name}: without keys no token can be checked; give --token-keys, --static-tokens "
            "or --oidc-issuer"
        )
    if settings.oidc_audience is not None and settings.oidc_issuer is None:
        raise InvalidConfig(f"{origins['oidc_audience'].name}: it is that of --oidc-issuer, which is not given")
    for field in TOKEN_SOURCES:
        if not settings.takes_tokens and getattr(settings, field) is not None:
            raise InvalidConfig(f"{origins[field].name}: it needs --authorizer tokens or user; else no token counts")
    if settings.zookeeper is not None and not {"store", "data"} & origins.keys():
        raise InvalidConfig(
            f"{origins['zookeeper'].name}: the brokers of a cluster share a store: "
            "name it by --store, or on a single machine by --data"
        )


def _refuse_half_tls(settings: BrokerSettings, origins: Mapping[str, Origin]) -> None:
    """Refuse TLS settings that are incomplete."""
    needed = {
        "tls_cert": (settings.tls_key, "a certificate is of no use without its key: give --tls-key too"),
        "tls_key": (settings.tls_cert, "a key is of no use without its certificate: give --tls-cert too"),
        "tls_client_ca": (settings.tls_cert, "only TLS has certificates of clients: give --tls-cert and --tls-key too"),
        "tls_ca": (
            settings.tls_cert or settings.zookeeper,
            "without --zookeeper a broker is on its own and calls no others",
        ),
    }
    for field, (other, why) in needed.items():
        if field in origins and other is None:
            raise InvalidConfig(f"{origins[field].name}: {why}")
    if settings.tls_cert is not None and settings.advertise is not None and settings.advertise.startswith("http:"):
        raise InvalidConfig(
            f"{origins['advertise'].name}: with --tls-cert this broker speaks TLS only: give an address that begins "
            f"with https://, not {settings.advertise!r}"
        )


def _refuse_half_keys(settings: BrokerSettings, origins: Mapping[str, Origin], environment: Mapping[str, str]) -> None:
    """Refuse keys of brokers that are given twice, or not at all."""
    has_text = bool(environment.get("BRAIDMQ_PEER_KEYS_TEXT"))
    if settings.peer_keys is not None and has_text:
        raise InvalidConfig(
            f"{origins['peer_keys'].name}: BRAIDMQ_PEER_KEYS_TEXT has peer keys too: give the file or the variable"
        )
    if settings.peer_keys_optional and settings.peer_keys is None and not has_text:
        raise InvalidConfig(f"{origins['peer_keys_optional'].name}: there are no peer keys: give --peer-keys too")
    if settings.peer_keys is not None and settings.zookeeper is None:
        raise InvalidConfig(
            f"{origins['peer_keys'].name}: without --zookeeper a broker is on its own and calls no others"
        )


def _refuse_half_zookeeper(
    settings: BrokerSettings, origins: Mapping[str, Origin], environment: Mapping[str, str]
) -> None:
    """Refuse incomplete credentials for ZooKeeper, and incomplete TLS settings for it."""
    has_text = bool(environment.get("BRAIDMQ_ZOOKEEPER_AUTH_TEXT"))
    if settings.zookeeper_auth is not None and has_text:
        raise InvalidConfig(
            f"{origins['zookeeper_auth'].name}: BRAIDMQ_ZOOKEEPER_AUTH_TEXT has credentials too: give the file or the "
            "variable"
        )
    tls = (settings.zookeeper_tls, "it needs --zookeeper-tls; else nothing is encrypted")
    needed = {
        "zookeeper_auth": (settings.zookeeper, "without --zookeeper there is nobody to prove it to"),
        "zookeeper_open": (settings.zookeeper_auth or has_text, "nodes are open without --zookeeper-auth"),
        "zookeeper_tls": (settings.zookeeper, "without --zookeeper there is nobody to speak to"),
        "zookeeper_ca": tls,
        "zookeeper_cert": tls,
        "zookeeper_key": (settings.zookeeper_cert, "a key is of no use without its certificate: --zookeeper-cert"),
    }
    for field, (other, why) in needed.items():
        if field in origins and getattr(settings, field) and not other:
            raise InvalidConfig(f"{origins[field].name}: {why}")
    if settings.zookeeper_cert is not None and settings.zookeeper_key is None:
        raise InvalidConfig(f"{origins['zookeeper_cert'].name}: it needs its key: give --zookeeper-key too")


def _refuse_exposure(settings: BrokerSettings, origins: Mapping[str, Origin]) -> None:
    """Refuse a broker that is open to a network, unless a setting says that this is intended."""
    has_tls, knows_clients = settings.tls_cert is not None, settings.tls_client_ca is not None
    who = "tokens" if settings.takes_tokens else settings.authorizer
    why = why_exposed(settings.host, who, has_tls=has_tls, knows_clients=knows_clients)
    if why is not None and not settings.insecure:
        raise InvalidConfig(
            f"{origins['host'].name}: at {settings.host!r} with --authorizer {settings.authorizer} {why}; give "
            "--insecure if the network is protected by other means, or "
            + (
                "demand certificates of clients by --tls-cert, --tls-key and --tls-client-ca"
                if settings.authorizer == "any"
                else "speak TLS by --tls-cert and --tls-key"
            )
        )


def _explain(error: ValidationError, origins: Mapping[str, Origin]) -> str:
    """Return the first error, in one line."""
    first = error.errors(include_url=False)[0]
    message = plain_message(first["msg"])
    given = " ".join(str(first["input"]).split())
    shown = given if len(given) <= 80 else given[:80] + "…"
    return f"{origins[str(first['loc'][0])].name}: {message[0].lower()}{message[1:]}, not {shown!r}"
