"""Requests to other brokers over HTTP (aiohttp), on connections that are kept."""

from collections.abc import Mapping

import aiohttp

from mq.errors import PeerSilent, PeerUnreachable
from mq.peers import PeerAnswer

CONNECT_SECONDS = 2.0
# Calls wait for puts, a few for each segment: none of them may keep the others waiting.
CONNECTIONS_PER_BROKER = 256
# A long poll holds one for each segment that is followed there.
POLLS_PER_BROKER = 4096
# Below the time for which servers keep idle connections: a request that meets one just being closed has an unknown
# outcome.
IDLE_SECONDS = 30.0


class HttpPeers:
    """A `PeerTransport` of so many connections to each broker. Belongs to one event loop; connects when first used."""

    def __init__(self, connections_per_broker: int = CONNECTIONS_PER_BROKER) -> None:
        self._connections_per_broker = connections_per_broker
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        """As `PeerTransport.send`. Never sends twice: aiohttp does so by itself only for idempotent methods."""
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._open().request(method, url, headers=headers, data=body, timeout=timeout) as response:
                data = await response.read()
                return PeerAnswer(response.status, {k.lower(): v for k, v in response.headers.items()}, data)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise PeerUnreachable(f"{url}: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerSilent(f"{url}: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, limit_per_host=self._connections_per_broker, keepalive_timeout=IDLE_SECONDS
            )
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False)
        return self._session
