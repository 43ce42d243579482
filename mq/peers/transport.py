"""How one HTTP request reaches another broker, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """An HTTP response: status, headers with names in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class PeerTransport(Protocol):
    """Sends HTTP requests to other brokers."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        """Send one request, at most once.

        Raises `PeerUnreachable` if the request certainly did not arrive, `PeerRefused` if nothing listens there, and
        `PeerSilent` if it may have arrived.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
