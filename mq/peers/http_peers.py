"""Requests to other brokers over HTTP (aiohttp), on connections that stay open."""

import errno
import ssl
from collections.abc import Callable, Mapping
from typing import TypeAlias

import aiohttp
from yarl import URL

from filer.event_log import EventLog
from mq.base.errors import PeerNotTrusted, PeerRefused, PeerSilent, PeerUnreachable
from mq.peers.calls import PREFIX
from mq.peers.transport import PeerAnswer

CONNECT_SECONDS = 2.0
# Calls wait for puts, a few of them for each segment. They must not make other calls wait.
CONNECTIONS_PER_BROKER = 256
# A long poll takes a connection for each segment that is followed there.
POLLS_PER_BROKER = 4096
# Less than the time for which servers keep idle connections: a request on a connection that is just being closed has an
# unknown outcome.
IDLE_SECONDS = 30.0

TlsOf: TypeAlias = Callable[[str], ssl.SSLContext | None]
# The other broker's error about our certificate. With TLS 1.3 it comes once we have begun to send; until it accepts the
# certificate, it reads nothing that was sent.
_OF_OUR_CERTIFICATE = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it demands a certificate of this broker",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it demands something else, perhaps a certificate of this broker",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the CA of this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not take this broker's certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not take this broker's certificate: it is for another purpose",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this broker's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "this broker's certificate is revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not take this broker's certificate",
}
_log = EventLog(__name__)


class HttpPeers:
    """A `PeerTransport` with a limit of connections to each broker. For one event loop; connects when first used.

    `tls_of` returns the TLS settings for the broker at an https address; if there are none, the system's CAs decide.
    Their names are verified.
    """

    def __init__(
        self, connections_per_broker: int = CONNECTIONS_PER_BROKER, *, tls_of: TlsOf = lambda base_url: None
    ) -> None:
        self._connections_per_broker, self._tls_of = connections_per_broker, tls_of
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        """As `PeerTransport.send`. Sends once: aiohttp repeats a request by itself only if its method is idempotent."""
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        tls = self._tls_of(url.partition(PREFIX)[0]) if url.startswith("https:") else None
        try:
            # Not even to another address of the same broker: the headers have the cluster's secret.
            async with self._open().request(
                method,
                url,
                headers=headers,
                data=body,
                timeout=timeout,
                allow_redirects=False,
                ssl=True if tls is None else tls,
            ) as response:
                data = await response.read()
                return PeerAnswer(response.status, {k.lower(): v for k, v in response.headers.items()}, data)
        except aiohttp.ClientConnectorCertificateError as error:
            _log.warning("broker_not_trusted", url=str(URL(url).origin()), error=error.certificate_error)
            raise PeerNotTrusted(f"{url}: {error.certificate_error}") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            # If a name has several addresses, all of them have refused.
            refused = isinstance(error, aiohttp.ClientConnectorError) and error.errno == errno.ECONNREFUSED
            raise (PeerRefused if refused else PeerUnreachable)(f"{url}: {_cause(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if (why := _why_not_taken(error)) is not None:
                _log.warning("broker_does_not_trust", url=str(URL(url).origin()), error=why)
                raise PeerNotTrusted(f"{url}: {why}") from error
            raise PeerSilent(f"{url}: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0,
                limit_per_host=self._connections_per_broker,
                keepalive_timeout=IDLE_SECONDS,
            )
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False)
        return self._session


def _cause(error: aiohttp.ClientError | TimeoutError) -> str:
    """Return the words of the network, or of TLS. The error's own text has the TLS context as a Python object."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error) or type(error.os_error).__name__
    return str(error)


def _why_not_taken(error: BaseException) -> str | None:
    """Return the other broker's error about our certificate, if that is how an exchange ended."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and cause.reason in _OF_OUR_CERTIFICATE:
            return _OF_OUR_CERTIFICATE[cause.reason]
        cause = cause.__cause__ or cause.__context__
    return None
