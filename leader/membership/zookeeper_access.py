"""A broker's credentials for ZooKeeper, the rights of others to its nodes (ACLs), and TLS."""

import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_digest_acl

from filer.errors import InvalidConfig
from filer.regular_file import read_regular_file


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """TLS to ZooKeeper: the CAs that are trusted, by default the system's, and the certificate to show, if any."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """For one connection: files that were changed count from the next one on. Raises `InvalidConfig`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.ca is None:
                context.load_default_certs()
            else:
                _read(self.ca)
                context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfig(f"{self.ca} (--zookeeper-ca) cannot be used: {_words(error)}") from error
        if self.cert is not None:
            try:
                for file in (self.cert, self.key):
                    if file is not None:
                        _read(file)
                # Without this, OpenSSL would ask at the terminal for the passphrase of a key that has one.
                context.load_cert_chain(self.cert, self.key, password=lambda: b"")
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfig(
                    f"{self.cert} (--zookeeper-cert) with {self.key} (--zookeeper-key) cannot be used: {_words(error)}"
                ) from error
        return context


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """`credentials` are name:password (ZooKeeper's scheme digest).

    With credentials, all nodes belong to their holders. `is_open`: the nodes stay open to all, while the brokers of a
    cluster get credentials one after the other.
    """

    credentials: str | None = field(default=None, repr=False)
    is_open: bool = False
    tls: ZooKeeperTls | None = None

    @property
    def closes_nodes(self) -> bool:
        """Whether nodes are to belong to the holders of the credentials."""
        return self.credentials is not None and not self.is_open

    @property
    def acl(self) -> list[Any]:
        """The ACL of each node."""
        found: list[Any] = CREATOR_ALL_ACL if self.closes_nodes else OPEN_ACL_UNSAFE
        return found

    def is_wanted(self, acls: Sequence[ACL]) -> bool:
        """Whether an ACL, as ZooKeeper returns it, gives all rights to those that should have them, and none to others.

        ZooKeeper writes our own name and hash in the place of "the creator". If it adds the name in this broker's
        certificate, or hashes otherwise (`digestAlg`), an ACL of ours looks like another one: then each session sets it
        again, to the same.
        """
        wanted = self.acl
        if self.credentials is not None and self.closes_nodes:
            user, _, password = self.credentials.partition(":")
            wanted = [make_digest_acl(user, password, all=True)]
        return list(acls) == wanted

    def options(self) -> dict[str, Any]:
        """For a new client of kazoo."""
        options: dict[str, Any] = {"default_acl": self.acl}
        if self.credentials is not None:
            options["auth_data"] = [("digest", self.credentials)]
        if self.tls is not None:
            options["handler"] = _tls_handler(self.tls)
        return options


def _tls_handler(tls: ZooKeeperTls) -> Any:
    """Connects by TLS. Kazoo's own way would trust the system's CAs besides those that are given."""
    handler: Any = SequentialThreadingHandler()

    def connect(address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> socket.socket:
        connection = socket.create_connection(address, timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return tls.context().wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise

    handler.create_connection = connect
    return handler


def _read(file: Path) -> None:
    """Raises `OSError` if it is no file: OpenSSL would wait for ever at a pipe without a writer."""
    read_regular_file(file, 1)


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)
