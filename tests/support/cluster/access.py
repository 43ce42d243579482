"""How the programs of a test get into a cluster: whom they trust, and who they say that they are."""

import ssl
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx


class NewestToken(httpx.Auth):
    """Sends the token that a file has when a request begins."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """As httpx calls it."""
        request.headers["authorization"] = f"Bearer {self._file.read_text()}"
        yield request


@dataclass(frozen=True)
class Access:
    """By default to a cluster without TLS, which asks nobody."""

    # Loading certificates, which nothing needs then, would hold up the test's event loop each time.
    tls: ssl.SSLContext | bool = False
    auth: httpx.Auth | None = None

    def client(self, **named: Any) -> httpx.AsyncClient:
        """A client of any broker. The environment's proxies and certificates are no part of the test."""
        return httpx.AsyncClient(verify=self.tls, auth=self.auth, trust_env=False, **named)
