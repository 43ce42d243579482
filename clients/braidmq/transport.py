"""HTTP to one broker: what was sent, what came back, and whether it may be sent again."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

import httpx

from braidmq.errors import (
    BraidMQError,
    ClientClosed,
    ConnectionBroken,
    InvalidArgument,
    NoConnection,
    OutcomeUnknown,
)
from braidmq.problems import refusal
from braidmq.retry import Retry
from filer.clock import Clock

Content: TypeAlias = bytes | AsyncIterator[bytes]
Parameters: TypeAlias = Mapping[str, str | int | float]
T = TypeVar("T")

_JITTER_BYTES = 4
_MAX_CONNECTIONS = 1000
# Below the five seconds after which servers commonly close idle connections: a publish that meets a
# connection just being closed has an unknown outcome.
_KEEPALIVE_SECONDS = 3.0
_LIMITS = httpx.Limits(
    max_connections=_MAX_CONNECTIONS, max_keepalive_connections=20, keepalive_expiry=_KEEPALIVE_SECONDS
)


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request: `target` is a path on the broker, or a whole address that the broker gave.

    `publishing` marks the one kind that must not be repeated once it may have arrived. `wait_seconds` is how
    long the broker was asked to hold the answer back.
    """

    method: str
    target: str
    params: Parameters | None = None
    content: Content | None = None
    headers: Mapping[str, str] | None = None
    publishing: bool = False
    wait_seconds: float = 0.0


class Transport:
    """Requests to the broker at `url`, and to the object store that it points to.

    A failure to connect is repeated only once the address has answered at least once: a wrong port fails at
    the first call, a broker that restarts is waited for.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_seconds: float,
        connect_timeout_seconds: float,
        retry: Retry,
        clock: Clock,
        http_transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self.url = _checked(url)
        self.clock = clock
        self.retry = retry
        self._timeout = httpx.Timeout(timeout_seconds, connect=connect_timeout_seconds)
        self._http_transport = http_transport
        self._reached = False
        self._exchanges: set[asyncio.Task[httpx.Response]] = set()
        self._broker = self._http_client(headers)

    @cached_property
    def _store(self) -> httpx.AsyncClient:
        """For presigned addresses: without the broker's headers, which are no business of the store."""
        return self._http_client({})

    def _http_client(self, headers: Mapping[str, str]) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=dict(headers), timeout=self._timeout, limits=_LIMITS, transport=self._http_transport
        )

    async def aclose(self) -> None:
        """Close every connection; requests under way and later ones raise `ClientClosed`."""
        await self._broker.aclose()
        # By hand: httpx leaves those waiting that wait for an answer.
        for exchange in self._exchanges:
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        if "_store" in self.__dict__:
            await self._store.aclose()

    async def request(self, call: Call, *, retry: Retry | None = None) -> httpx.Response:
        """A successful answer of the broker, after as many tries as are safe and `retry` allows."""
        return await self.repeat(lambda: self.once(call), retry=retry)

    async def once(self, call: Call) -> httpx.Response:
        """One try: a successful answer, or the exception for any other."""
        response = await self.send(call)
        if not response.is_success:
            raise refusal(response, publishing=call.publishing)
        return response

    async def repeat(self, attempt: Callable[[], Awaitable[T]], *, retry: Retry | None = None) -> T:
        """The result of `attempt`, tried again while it fails with retryable errors and `retry` allows."""
        policy = self.retry if retry is None else retry
        started = self.clock.monotonic_seconds()
        failures = 0
        while True:
            try:
                return await attempt()
            except BraidMQError as failure:
                failures += 1
                if not self._may_repeat(failure):
                    raise
                pause = max(self.pause_seconds(failures, policy), failure.retry_after_seconds)
                if self.clock.monotonic_seconds() + pause - started > policy.give_up_after_seconds:
                    raise
            await self.clock.sleep(pause)

    def pause_seconds(self, failures: int, policy: Retry) -> float:
        """How long to wait after that many failures in a row."""
        return policy.delay_seconds(failures, self.clock.entropy(_JITTER_BYTES))

    def _may_repeat(self, failure: BraidMQError) -> bool:
        return failure.retryable and (self._reached or not isinstance(failure, NoConnection))

    async def send(self, call: Call, *, stream: bool = False) -> httpx.Response:
        """One try: the answer, whatever its status; with `stream` its body is still to be read and closed."""
        url = f"{self.url}{call.target}" if call.target.startswith("/") else call.target
        if self._broker.is_closed:
            raise ClientClosed()
        client = self._broker if self._is_broker(url) else self._store
        request = client.build_request(
            call.method,
            url,
            params=call.params,
            content=call.content,
            headers=call.headers,
            timeout=self._timeout_of(call),
        )
        exchange = asyncio.create_task(client.send(request, stream=stream))
        self._exchanges.add(exchange)
        try:
            response = await exchange
        except httpx.HTTPError as failure:
            raise connection_error(failure, request.url, publishing=call.publishing) from failure
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not self._broker.is_closed or (caller is not None and caller.cancelling()):
                raise
            if call.publishing:
                raise OutcomeUnknown("the client was closed before the answer to a publish came") from None
            raise ClientClosed() from None
        finally:
            self._exchanges.discard(exchange)
        self._reached = True
        return response

    def _is_broker(self, url: str) -> bool:
        return url.startswith(f"{self.url}/")

    def _timeout_of(self, call: Call) -> httpx.Timeout:
        patient = httpx.Timeout(self._timeout)
        if patient.read is not None:
            patient.read += call.wait_seconds
        return patient


def connection_error(failure: httpx.HTTPError, url: httpx.URL, *, publishing: bool) -> BraidMQError:
    """What a broken exchange means for whoever asked for it."""
    address = f"{url.scheme}://{url.netloc.decode()}"
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout):
        return NoConnection(f"no connection to {address}: {_cause(failure)}; is a broker listening there?")
    if isinstance(failure, httpx.PoolTimeout):
        return NoConnection(f"all {_MAX_CONNECTIONS} connections of this client are in use; nothing was sent")
    what = _cause(failure)
    if publishing:
        return OutcomeUnknown(
            f"the answer of {address} to a publish was lost ({what}): the messages may or may not be stored"
        )
    return ConnectionBroken(f"the answer of {address} was lost: {what}")


def _cause(failure: BaseException) -> str:
    """The innermost reason, in the operating system's words where there is one."""
    innermost = failure
    while (deeper := innermost.__cause__ or innermost.__context__) is not None:
        innermost = deeper
    if isinstance(innermost, OSError) and innermost.errno is not None:
        # Name resolution fails with negative numbers and words of its own; asyncio's for the rest say less.
        return os.strerror(innermost.errno) if innermost.errno > 0 else str(innermost.strerror)
    if isinstance(failure, httpx.TimeoutException):
        return f"no answer in time ({type(failure).__name__})"
    return str(failure) or type(failure).__name__


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as failure:
        raise InvalidArgument(f"{url!r} is no broker's address: {failure}") from failure
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidArgument(f"{url!r} is no broker's address: give it as http://host:port or https://host")
    return url.rstrip("/")
