"""Puts of objects whose bytes arrive while they are sent: no object is ever whole in memory."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import httpx2

from filer.errors import ObjectExists, OutcomeUnknown, StoreRefused, StoreUnreached
from filer.stores.exact_stream import ExactStream
from filer.stores.s3.s3_errors import NOT_FOUND, PRECONDITION_FAILED, TEMPORARY_STATUSES
from filer.stores.s3.s3_settings import S3Settings
from filer.stores.store import PresignedRequest

_SHOWN_BYTES = 300
_POOL_SECONDS = 1.0
"""A caller beyond `StoreTraits.streams_at_once` gets an error after this time: nothing reads a body that waits here."""


async def checked_chunks(chunks: AsyncIterator[bytes], check: ExactStream) -> AsyncIterator[bytes]:
    """The chunks. The last one comes only once all of them match what was announced. Raises `InvalidInput`.

    The sender then breaks off before the end: the store got fewer bytes than announced, and keeps nothing.
    """
    held = b""
    async for chunk in chunks:
        check.add(chunk)
        if chunk:
            if held:
                yield held
            held = chunk
    check.finish()
    if held:
        yield held


async def _in_order(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


class S3Streaming:
    """Sends presigned puts. Each is sent once, and waits for the store no longer than any other request."""

    def __init__(self, settings: S3Settings, ca_file: str | None) -> None:
        wait_seconds = settings.request_timeout_seconds
        self._client = httpx2.AsyncClient(
            verify=ssl.create_default_context(cafile=ca_file) if ca_file else True,
            timeout=httpx2.Timeout(wait_seconds, connect=settings.connect_timeout_seconds, pool=_POOL_SECONDS),
            limits=httpx2.Limits(max_connections=settings.pool_size),
            follow_redirects=False,
        )

    async def put(self, key: str, presigned: PresignedRequest, chunks: AsyncIterator[bytes]) -> str:
        """Send the chunks; returns the `Date` of the answer. Raises as `Store.create` does, and as the chunks do."""
        headers = {**presigned.headers, "User-Agent": "BraidMQ"}
        # No connection is taken before a chunk has come. If there are no chunks, the head is the whole request.
        first = await anext(chunks, b"")
        try:
            answer = await self._client.put(presigned.url, content=_in_order(first, chunks), headers=headers)
        except (httpx2.PoolTimeout, httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            # Not even the head was sent: these errors come only before there is a connection.
            raise StoreUnreached(f"{key!r}: {type(error).__name__} {error}", cause="connection") from error
        except httpx2.HTTPError as error:
            # Perhaps it was stored, and the answer was lost.
            raise OutcomeUnknown(f"{key!r}: {type(error).__name__} {error}", cause="connection") from error
        if answer.status_code == PRECONDITION_FAILED:
            raise ObjectExists(f"{key} exists already")
        if answer.status_code >= 500 or answer.status_code in TEMPORARY_STATUSES:
            raise OutcomeUnknown(f"{key!r}: the store answered {answer.status_code}", cause=str(answer.status_code))
        if not answer.is_success:
            why = "there is no such bucket" if answer.status_code == NOT_FOUND else answer.text[:_SHOWN_BYTES]
            raise StoreRefused(
                f"{key!r}: the store answered {answer.status_code}: {why}", cause=str(answer.status_code)
            )
        return answer.headers.get("date", "")

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()
