"""Refuses settings of the listener for brokers that cannot be used together."""

from collections.abc import Mapping

from filer.errors import InvalidConfig
from mq.base.exposure import EVERYWHERE, is_this_machine
from mq.base.settings import BrokerSettings

_OF_PORT = ("peer_host", "peer_advertise", "peer_port_optional", "peer_tls_cert", "peer_tls_key", "peer_tls_ca")
_OF_TLS = ("peer_tls_cert", "peer_tls_key", "peer_tls_ca")


def refuse_half_peer_listener(settings: BrokerSettings, named: Mapping[str, str]) -> None:
    """Raise `InvalidConfig`. `named` maps each given setting to its name in the place where it was given."""
    if settings.peer_port is None:
        for field in _OF_PORT:
            if field in named and getattr(settings, field):
                raise InvalidConfig(f"{named[field]}: it is about the listener for brokers: give --peer-port too")
        return
    if settings.zookeeper is None:
        raise InvalidConfig(f"{named['peer_port']}: without --zookeeper a broker is on its own and no others call it")
    if settings.peer_port == settings.port != 0 and _meet(settings.host, settings.peer_address):
        raise InvalidConfig(
            f"{named['peer_port']}: clients have the port {settings.port} already (--port): give brokers another one"
        )
    _refuse_half_tls(settings, named)
    at, advertised = settings.peer_address, settings.peer_advertise or ""
    if settings.peer_tls_cert is None and settings.tls_cert is None:
        if not is_this_machine(at) and not settings.insecure:
            raise InvalidConfig(
                f"{named.get('peer_host', named['peer_port'])}: at {at!r} everybody on the way can read what brokers "
                "say to each other; speak TLS by --peer-tls-cert, --peer-tls-key and --peer-tls-ca, or give --insecure "
                "if the network is protected by other means"
            )
    elif advertised.startswith("http:"):
        raise InvalidConfig(
            f"{named['peer_advertise']}: the listener for brokers speaks TLS only: give an address that begins with "
            f"https://, not {advertised!r}"
        )


def _refuse_half_tls(settings: BrokerSettings, named: Mapping[str, str]) -> None:
    """All three or none: an operator with a certificate only for brokers wants one from each broker."""
    missing = [field for field in _OF_TLS if getattr(settings, field) is None]
    given = [field for field in _OF_TLS if field in named and field not in missing]
    if missing and given:
        flags = " and ".join("--" + field.replace("_", "-") for field in missing)
        raise InvalidConfig(f"{named[given[0]]}: brokers show each other certificates of a CA: give {flags} too")


def _meet(host: str, other: str) -> bool:
    """Whether the two addresses cannot have the same port."""
    return host == other or host in EVERYWHERE or other in EVERYWHERE
