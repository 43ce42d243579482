"""HTTP to the brokers: what was sent, what came back, and whether it may be sent again."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

import httpx

from braidmq.addresses import Addresses
from braidmq.errors import (
    BraidMQError,
    ClientClosed,
    ConnectionBroken,
    InvalidArgument,
    NoConnection,
    NotABroker,
    OutcomeUnknown,
)
from braidmq.exchange import Exchange
from braidmq.problems import refusal
from braidmq.retry import Retry
from braidmq.tls import tls_context
from braidmq.tour import Tour
from filer.clock import Clock

Content: TypeAlias = bytes | AsyncIterator[bytes]
Parameters: TypeAlias = Mapping[str, str | int | float]
T = TypeVar("T")

ARROW = "application/vnd.apache.arrow.stream"
_JITTER_BYTES = 4
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
"""What HTTP takes, in ASCII."""
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

    `publishing` marks the one kind whose repetition could store something twice once it may have arrived.
    `wait_seconds` is how long the broker was asked to hold the answer back; `timeout_seconds` is how long this
    one may take where that is less than the client's own time-out.
    """

    method: str
    target: str
    params: Parameters | None = None
    content: Content | None = None
    headers: Mapping[str, str] | None = None
    publishing: bool = False
    wait_seconds: float = 0.0
    timeout_seconds: float | None = None


class Transport:
    """Requests to the brokers at `addresses`, and to the object store that they point to.

    A call whose broker fails goes on at the next one. A failure to connect to any is repeated only once one of
    them has answered: a wrong port fails at the first call, a broker that restarts is waited for. `heard` is
    called after each answer.
    """

    def __init__(
        self,
        addresses: Addresses,
        *,
        headers: Mapping[str, str],
        timeout_seconds: float,
        connect_timeout_seconds: float,
        retry: Retry,
        clock: Clock,
        http_transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self.addresses = addresses
        self.heard: Callable[[], None] = _nothing
        self.clock = clock
        self.retry = retry
        self._timeout = httpx.Timeout(timeout_seconds, connect=connect_timeout_seconds)
        self._http_transport = http_transport
        self._reached = self._closed = False
        self._exchanges: set[Exchange] = set()
        self._broker = self._http_client(_checked_headers(headers))

    @cached_property
    def _store(self) -> httpx.AsyncClient:
        """For presigned addresses: without the broker's headers, which are no business of the store."""
        return self._http_client({})

    def _http_client(self, headers: Mapping[str, str]) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=dict(headers),
            timeout=self._timeout,
            limits=_LIMITS,
            transport=self._http_transport,
            verify=tls_context(),
        )

    async def aclose(self) -> None:
        """Close every connection; requests under way and later ones raise `ClientClosed`."""
        self._closed = True
        # By hand, and first: httpx leaves those waiting that wait for an answer, and open what connects meanwhile.
        await asyncio.gather(*(exchange.end() for exchange in self._exchanges))
        await self._broker.aclose()
        if "_store" in self.__dict__:
            await self._store.aclose()

    @property
    def is_closed(self) -> bool:
        """Whether requests are refused."""
        return self._closed

    async def request(self, call: Call, *, retry: Retry | None = None) -> httpx.Response:
        """A successful answer of a broker, after as many tries as are safe and `retry` allows."""
        return await self.repeat(lambda address: self.once(call, address), retry=retry)

    async def once(self, call: Call, address: str) -> httpx.Response:
        """One try: a successful answer, or the exception for any other."""
        response = await self.send(call, address)
        if not response.is_success:
            raise refusal(response, publishing=call.publishing)
        return response

    async def repeat(self, attempt: Callable[[str], Awaitable[T]], *, retry: Retry | None = None) -> T:
        """The result of `attempt`, given a broker's address.

        Where it fails with a retryable error it is tried with every other address at once, and after a pause
        with all of them again, while `retry` allows.
        """
        policy = self.retry if retry is None else retry
        started = self.clock.monotonic_seconds()
        rounds = 0
        tour = Tour(self.addresses)
        while True:
            address = tour.next_address()
            try:
                return await attempt(address)
            except BraidMQError as failure:
                astray = isinstance(failure, NotABroker) and not self.addresses.is_given(address)
                if not failure.retryable and not astray:
                    raise
                if tour.goes_on_after(address, failure):
                    continue
                rounds += 1
                pause = max(self.pause_seconds(rounds, policy), failure.retry_after_seconds)
                late = self.clock.monotonic_seconds() + pause - started > policy.give_up_after_seconds
                if late or self.is_hopeless(failure):
                    raise tour.told(failure) from failure.__cause__
            await self.clock.sleep(pause)
            tour.begin_again()

    def pause_seconds(self, failures: int, policy: Retry) -> float:
        """How long to wait after that many failures in a row."""
        return policy.delay_seconds(failures, self.clock.entropy(_JITTER_BYTES))

    def is_hopeless(self, failure: BraidMQError) -> bool:
        """Whether nobody answers, and nobody ever has."""
        return isinstance(failure, NoConnection) and not self._reached

    async def send(self, call: Call, address: str, *, stream: bool = False) -> httpx.Response:
        """One try: the answer, whatever its status; with `stream` its body is still to be read and closed."""
        url = f"{address}{call.target}" if call.target.startswith("/") else call.target
        if self._closed:
            raise ClientClosed()
        client = self._broker if url.startswith(f"{address}/") or self._is_broker(url) else self._store
        request = client.build_request(
            call.method,
            url,
            params=call.params,
            content=call.content,
            headers=call.headers,
            timeout=self._timeout_of(call),
        )
        exchange = Exchange(client.send(request, stream=stream))
        self._exchanges.add(exchange)
        try:
            response = await exchange.response()
        except httpx.HTTPError as failure:
            raise connection_error(failure, request.url, publishing=call.publishing) from failure
        finally:
            self._exchanges.discard(exchange)
        if response is None:
            if call.publishing:
                raise OutcomeUnknown("the client was closed before the answer to a publish came")
            raise ClientClosed()
        self._reached = True
        self.heard()
        return response

    def _is_broker(self, url: str) -> bool:
        return any(url.startswith(f"{each}/") for each in self.addresses.all)

    def _timeout_of(self, call: Call) -> httpx.Timeout:
        if call.timeout_seconds is not None:
            whole = min(self._timeout.read or call.timeout_seconds, call.timeout_seconds)
            return httpx.Timeout(whole, connect=min(self._timeout.connect or whole, whole))
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


def _nothing() -> None:
    """For clients that do not look at the cluster."""


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers, if HTTP takes them; raises `InvalidArgument`. Values may be secret and are not told."""
    for name, value in headers.items():
        if not _is_like(_HEADER_NAME, name):
            raise InvalidArgument(f"{name!r:.80} is no name of a header: ASCII letters, digits and - are wanted")
        if not _is_like(_HEADER_VALUE, value):
            raise InvalidArgument(f"the value of the header {name} is not printable ASCII without spaces at its ends")
    return headers


def _is_like(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None
