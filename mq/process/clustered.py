"""The coordinator of a broker of a cluster: ZooKeeper, and this broker's credentials for it."""

from collections.abc import Mapping
from pathlib import Path

from filer.clock import Clock
from filer.errors import InvalidConfig
from filer.regular_file import read_regular_file
from leader.membership.coordinator import Coordinator
from leader.membership.zookeeper_access import ZooKeeperAccess, ZooKeeperTls
from leader.membership.zookeeper_coordinator import ZooKeeperCoordinator
from mq.base.private_file import tell_if_open
from mq.base.settings import BrokerSettings

AUTH_VARIABLE = "BRAIDMQ_ZOOKEEPER_AUTH_TEXT"
"""Contains the credentials themselves, if there can be no file."""
MOST_BYTES = 4096


def clustered_coordinator(settings: BrokerSettings, environment: Mapping[str, str], clock: Clock) -> Coordinator:
    """Return the coordinator for the settings. Raises `InvalidConfig` for files that cannot be used."""
    assert settings.zookeeper is not None
    return ZooKeeperCoordinator(
        settings.zookeeper,
        settings.cluster,
        clock,
        session_timeout_seconds=settings.session_timeout,
        access=zookeeper_access(settings, environment),
    )


def zookeeper_access(settings: BrokerSettings, environment: Mapping[str, str]) -> ZooKeeperAccess:
    """Return the access that the settings describe. Raises `InvalidConfig`."""
    tls = None
    if settings.zookeeper_tls:
        tls = ZooKeeperTls(settings.zookeeper_ca, settings.zookeeper_cert, settings.zookeeper_key)
        tls.context()  # files that cannot be used are reported now
        if tls.key is not None:
            tell_if_open(tls.key)
    credentials = _credentials(settings.zookeeper_auth, environment.get(AUTH_VARIABLE))
    return ZooKeeperAccess(credentials, settings.zookeeper_open, tls)


def _credentials(path: Path | None, text: str | None) -> str | None:
    """Return the credentials, which no message repeats."""
    name = AUTH_VARIABLE if path is None else f"{path} (--zookeeper-auth)"
    if path is not None:
        tell_if_open(path)
        try:
            text = read_regular_file(path, MOST_BYTES).decode()
        except OSError as error:
            raise InvalidConfig(f"{name}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidConfig(f"{name}: it is no text") from error
    if text is None or (path is None and not text):
        return None
    found = text.strip()
    user, colon, password = found.partition(":")
    if not user or not colon or not password or len(found.split()) != 1:
        raise InvalidConfig(f"{name}: it must be one line of the form name:password")
    return found
