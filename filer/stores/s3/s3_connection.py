"""The connection to S3: a client that is made at the first call, and sends every request once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiobotocore.config import AioConfig
from aiobotocore.httpxsession import HttpxSession
from aiobotocore.session import AioSession, get_session
from botocore.loaders import Loader, create_loader

from filer.stores.s3.s3_settings import S3Settings

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client


class S3Connection:
    """A client of S3 and its pool of connections. `on_date` gets the `Date` header of every answer."""

    def __init__(self, settings: S3Settings, *, on_date: Callable[[str], object]) -> None:
        self._settings, self._on_date = settings, on_date
        self._connecting = asyncio.Lock()
        self._resources = contextlib.AsyncExitStack()
        self._clients: dict[bool, S3Client] = {}

    async def client(self, *, is_new: bool = False) -> S3Client:
        """The client; it connects at its first call, and keeps its connections.

        With `is_new`, returns another client that opens a connection for each request. It is for requests that got no
        answer on a kept connection.
        """
        if (known := self._clients.get(is_new)) is not None:
            return known
        async with self._connecting:
            if is_new not in self._clients:
                client = await self._resources.enter_async_context(self._new_client(keeps=not is_new))
                # Before errors are raised: answers such as 412 carry a time too.
                client.meta.events.register("after-call.s3", self._answered)
                self._clients[is_new] = client
            return self._clients[is_new]

    @property
    def ca_file(self) -> str | None:
        """The certificates that verify the store, if not the usual ones (`AWS_CA_BUNDLE`)."""
        found: str | None = get_session().get_config_variable("ca_bundle")
        return found

    def _answered(self, parsed: Any, **_: Any) -> None:
        self._on_date(parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", ""))

    def _new_client(self, *, keeps: bool) -> contextlib.AbstractAsyncContextManager[S3Client]:
        settings = self._settings
        # aiohttp, the default, repeats a request by itself when a kept connection breaks. This one is of httpx2: httpx
        # loses a connection of its pool for ever if a request is cancelled just when it gets that connection. A broker
        # that has lost all of them cannot reach its store. The published types know only the class for aiohttp.
        http_session: Any = HttpxSession
        config = AioConfig(
            http_session_cls=http_session,
            retries={"total_max_attempts": 1},
            connect_timeout=settings.connect_timeout_seconds,
            read_timeout=settings.request_timeout_seconds,
            connector_args={
                "write_timeout": settings.request_timeout_seconds,
                "pool_timeout": settings.request_timeout_seconds,
                **({} if keeps else {"keepalive_timeout": 0.0}),
            },
            max_pool_connections=settings.pool_size,
            signature_version="s3v4",
            # The default names more, and botocore builds it from 16 pieces twice for each request.
            user_agent="BraidMQ",
            s3={"addressing_style": settings.addressing_style},
            # Many stores that speak S3 refuse checksums in trailers.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return _new_session().create_client(
            "s3", region_name=settings.region, endpoint_url=settings.endpoint_url, config=config
        )

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._clients.clear()
        await self._resources.aclose()


def _new_session() -> AioSession:
    session = get_session()
    session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
    return session


@functools.cache
def _descriptions(data_path: str | None) -> Loader:
    """Load botocore's descriptions of the services of AWS, once a process: that takes as long as fifty requests.

    A job opens several stores. They share the descriptions alone: each client has its own credentials.
    """
    return create_loader(data_path)
