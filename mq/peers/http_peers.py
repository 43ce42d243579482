"""Requests to other brokers over HTTP (aiohttp), on connections that stay open."""

import errno
import ssl
from collections.abc import Mapping

import aiohttp
from yarl import URL

from filer.event_log import EventLog
from mq.base.errors import PeerRefused, PeerSilent, PeerUnreachable
from mq.peers.transport import PeerAnswer

CONNECT_SECONDS = 2.0
# Calls wait for puts, a few of them for each segment. They must not make other calls wait.
CONNECTIONS_PER_BROKER = 256
# A long poll takes a connection for each segment that is followed there.
POLLS_PER_BROKER = 4096
# Less than the time for which servers keep idle connections: a request on a connection that is just being closed has
# an unknown outcome.
IDLE_SECONDS = 30.0

_log = EventLog(__name__)


class HttpPeers:
    """A `PeerTransport` with a limit of connections to each broker. For one event loop; connects when first used.

    `tls` is for brokers at https addresses; without it, the system's CAs decide. Their names are verified.
    """

    def __init__(
        self, connections_per_broker: int = CONNECTIONS_PER_BROKER, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._connections_per_broker, self._tls = connections_per_broker, tls
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        """As `PeerTransport.send`. Sends once: aiohttp repeats a request by itself only if its method is idempotent."""
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        try:
            # Not even to another address of the same broker: the headers have the cluster's secret.
            async with self._open().request(
                method, url, headers=headers, data=body, timeout=timeout, allow_redirects=False
            ) as response:
                data = await response.read()
                return PeerAnswer(response.status, {k.lower(): v for k, v in response.headers.items()}, data)
        except aiohttp.ClientConnectorCertificateError as error:
            _log.warning("broker_not_trusted", url=str(URL(url).origin()), error=error.certificate_error)
            raise PeerUnreachable(f"{url}: {error.certificate_error}") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            # Where a name has several addresses, all of them have refused.
            refused = isinstance(error, aiohttp.ClientConnectorError) and error.errno == errno.ECONNREFUSED
            raise (PeerRefused if refused else PeerUnreachable)(f"{url}: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
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
                ssl=True if self._tls is None else self._tls,
            )
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False)
        return self._session
