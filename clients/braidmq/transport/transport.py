"""HTTP to the brokers: sends requests, and repeats those that may be repeated."""

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import httpx

from braidmq.errors import (
    BraidMQError,
    ClientClosed,
    InvalidArgument,
    NoConnection,
    NotABroker,
    OutcomeUnknown,
)
from braidmq.forks import Birthplace
from braidmq.transport.addresses import Addresses
from braidmq.transport.broker_failover import BrokerFailover
from braidmq.transport.connection_errors import MAX_CONNECTIONS, connection_error
from braidmq.transport.exchange import Exchange
from braidmq.transport.problems import refusal
from braidmq.transport.retry import NEVER_GIVE_UP, Retry
from braidmq.transport.tls import tls_context
from braidmq.transport.tokens import Token
from braidmq.transport.trace_context import TraceHeaders, trace_headers
from braidmq.transport.waits import Wait, Waits
from filer.clock import Clock

Content: TypeAlias = bytes | Callable[[], AsyncIterator[bytes]]
"""A body, or a function that yields its parts: anew for each time that it is sent."""
Parameters: TypeAlias = Mapping[str, str | int | float]
T = TypeVar("T")
_log = logging.getLogger("braidmq.transport")

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
_JITTER_BYTES = 4
_SENT = "http11.send_request_body.complete"
"""httpx's name for the moment from which on a broker can hold its answer back."""
_UNAUTHENTICATED = 401
# The characters that HTTP allows, in ASCII.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
# Servers commonly close idle connections after five seconds, and a publish on a connection that is just being closed
# has an unknown outcome. So this is less.
_KEEPALIVE_SECONDS = 3.0
_LIMITS = httpx.Limits(
    max_connections=MAX_CONNECTIONS, max_keepalive_connections=20, keepalive_expiry=_KEEPALIVE_SECONDS
)


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request: `target` is a path on the broker, or a full address that the broker gave.

    `publishing` marks publishes: if one may have arrived, repeating it could store something twice. `wait_seconds` is
    how long the broker may hold the answer back, as the request asks it to. `timeout_seconds` shortens the client's
    own time-out for every try of this request. `trace` has the headers of the trace that it belongs to; by default the
    caller's.
    """

    method: str
    target: str
    params: Parameters | None = None
    content: Content | None = None
    headers: Mapping[str, str] | None = None
    publishing: bool = False
    wait_seconds: float = 0.0
    timeout_seconds: float | None = None
    trace: TraceHeaders | None = None


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a call: at which broker, and how long to wait for its answer at most, if the call bounds that.

    `wait` is that of the call, if it is noted.
    """

    address: str
    timeout_seconds: float | None = None
    wait: Wait | None = None


class Transport:
    """Requests to the brokers at `addresses`, and to the object store that they point to.

    If a broker fails, the call goes on with the next one. If no broker can be connected to, the call is repeated only
    if one of them has ever answered: so a wrong port fails at the first call, and a restarting broker is waited for.
    Callers that never give up (workers, members, subscriptions) wait for the first answer as well, and log that once.
    `on_response` is called after each answer. `waits` has the calls that have no result yet.
    """

    def __init__(
        self,
        addresses: Addresses,
        *,
        headers: Mapping[str, str],
        token: Token,
        tls: ssl.SSLContext | None = None,
        timeout_seconds: float,
        connect_timeout_seconds: float,
        retry: Retry,
        clock: Clock,
        http_transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self.addresses, self.token = addresses, token
        self.on_response: Callable[[], None] = _no_op
        self.clock = clock
        self.retry = retry
        self.waits = Waits(clock)
        self._timeout_seconds, self._connect_timeout_seconds = timeout_seconds, connect_timeout_seconds
        self._http_transport = http_transport
        self._reached = self._closed = self._has_said = False
        self._exchanges: set[Exchange] = set()
        self._birthplace = Birthplace()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker = self._http_client(_checked_headers(headers), tls or tls_context())

    @cached_property
    def _store(self) -> httpx.AsyncClient:
        """For presigned addresses: without the broker's headers, which may hold secrets that the store must not get.

        Nor does it trust a store that only the brokers' CA knows, or show the client's certificate to the store.
        """
        return self._http_client({}, tls_context())

    def _http_client(self, headers: Mapping[str, str], tls: ssl.SSLContext) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=dict(headers),
            limits=_LIMITS,
            transport=self._http_transport,
            verify=tls,
        )

    async def aclose(self) -> None:
        """Close every connection. Requests in flight and later ones raise `ClientClosed`.

        A caller that is cancelled meanwhile is cancelled only once all are closed.
        """
        self._closed = True
        if self._birthplace.is_elsewhere or (self._loop is not None and self._loop.is_closed()):
            return  # nothing is left that could be closed from here
        closing = asyncio.ensure_future(self._close_all())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])
            raise

    async def _close_all(self) -> None:
        # First: httpx would not wake requests that wait for an answer, and would leave connections open that are being
        # made.
        await asyncio.gather(*(exchange.end() for exchange in self._exchanges))
        await self._broker.aclose()
        if "_store" in self.__dict__:
            await self._store.aclose()

    @property
    def is_closed(self) -> bool:
        """Whether requests are refused."""
        return self._closed

    async def request(self, call: Call, *, retry: Retry | None = None) -> httpx.Response:
        """Return a broker's successful answer, after as many tries as are safe and `retry` allows."""
        return await self.repeat(
            lambda attempt: self.once(call, attempt), retry=retry, held_back_seconds=call.wait_seconds
        )

    async def once(self, call: Call, attempt: Try) -> httpx.Response:
        """Try once: return a successful answer, or raise the exception for any other."""
        response = await self.send(call, attempt)
        if not response.is_success:
            raise refusal(response, publishing=call.publishing)
        return response

    async def repeat(
        self, work: Callable[[Try], Awaitable[T]], *, retry: Retry | None = None, held_back_seconds: float = 0.0
    ) -> T:
        """Return the result of `work`. Its argument is where to try it, which it has to pass to `once` or `send`.

        After a retryable error it is tried with every other address at once. After a pause all addresses are tried
        again, as long as `retry` allows. `held_back_seconds` is how long a broker may hold its answer back.
        """
        policy = self.retry if retry is None else retry
        # A call that is tried only once is news that its callers can do without.
        is_awaited = policy.give_up_after_seconds > 0
        with self.waits.of_call(held_back_seconds=held_back_seconds, is_awaited=is_awaited) as wait:
            return await self._repeat(work, policy, wait)

    async def _repeat(self, work: Callable[[Try], Awaitable[T]], policy: Retry, wait: Wait) -> T:
        started_seconds = self.clock.monotonic_seconds()
        rounds = 0
        failover = BrokerFailover(self.addresses)
        while True:
            address = failover.next_address()
            wait.tries(address)
            elapsed_seconds = self.clock.monotonic_seconds() - started_seconds
            try:
                return await work(Try(address, policy.try_seconds(elapsed_seconds, failover.untried), wait))
            except BraidMQError as failure:
                wait.failed(failure)
                is_stray = isinstance(failure, NotABroker) and not self.addresses.is_given(address)
                if not failure.retryable and not is_stray:
                    raise
                if failover.record(address, failure):
                    continue
                rounds += 1
                pause_seconds = max(self.pause_seconds(rounds, policy), failure.retry_after_seconds)
                late = self.clock.monotonic_seconds() + pause_seconds - started_seconds > policy.give_up_after_seconds
                if late or self.is_hopeless(failure, policy):
                    raise failover.with_earlier_failures(failure) from failure.__cause__
                self._say_once(failure)
            await self.clock.sleep(pause_seconds)
            failover.reset()

    def pause_seconds(self, failures: int, policy: Retry) -> float:
        """Return how long to wait after that many failures in a row."""
        return policy.delay_seconds(failures, self.clock.entropy(_JITTER_BYTES))

    def is_hopeless(self, failure: BraidMQError, policy: Retry | None = None) -> bool:
        """Whether no broker answers, none ever has, and neither `retry` nor that policy says to wait all the same."""
        never_gives_up = policy is not None and policy.give_up_after_seconds == NEVER_GIVE_UP
        is_patient = self.retry.for_all_calls or never_gives_up
        return isinstance(failure, NoConnection) and not self._reached and not is_patient

    def _say_once(self, failure: BraidMQError) -> None:
        """Log once that no broker answers: a program that waits for its brokers may as well have a wrong address."""
        if isinstance(failure, NoConnection) and not (self._reached or self._has_said):
            self._has_said = True
            _log.warning("no broker has answered yet, and it goes on trying: %s", failure)

    async def send(self, call: Call, attempt: Try, *, stream: bool = False) -> httpx.Response:
        """Try once: return the answer, whatever its status. With `stream`, the caller reads and closes its body."""
        response = await self._answer(call, attempt, stream=stream)
        # Nothing was done for a token that is refused. So renewing a token in a file and ending the old one stops no
        # client, also if a poll waits for longer than each of them is valid.
        while response.status_code == _UNAUTHENTICATED:
            if not self.token.is_renewed(response.request.headers.get("authorization")):
                break
            await response.aclose()
            if attempt.wait is not None:
                attempt.wait.asks_again(held_back_seconds=call.wait_seconds)
            response = await self._answer(call, attempt, stream=stream)
        return response

    async def _answer(self, call: Call, attempt: Try, *, stream: bool) -> httpx.Response:
        address = attempt.address
        url = f"{address}{call.target}" if call.target.startswith("/") else call.target
        if self._closed:
            raise ClientClosed()
        self._check_loop()
        is_broker = url.startswith(f"{address}/") or self._is_broker(url)
        client = self._broker if is_broker else self._store
        request = client.build_request(
            call.method,
            url,
            params=call.params,
            content=call.content() if callable(call.content) else call.content,
            headers={**self.token.headers(), **(_headers_of(call) or {})} if is_broker else call.headers,
            timeout=self._timeout_of(call, attempt.timeout_seconds if is_broker else None),
            extensions=_watched(call, attempt.wait),
        )
        exchange = Exchange(client.send(request, stream=stream))
        self._exchanges.add(exchange)
        try:
            response = await exchange.response()
        except (httpx.HTTPError, ssl.SSLError) as failure:  # httpx lets errors of TLS after the handshake through
            raise connection_error(failure, request.url, publishing=call.publishing) from failure
        finally:
            self._exchanges.discard(exchange)
        if response is None:
            if call.publishing:
                raise OutcomeUnknown("the client was closed before the answer to a publish came")
            raise ClientClosed()
        self._reached = True
        self.on_response()
        return response

    async def answered(self) -> None:
        """Note that a broker has answered a caller that asked it on a connection of its own."""
        self._reached = True
        self.on_response()

    def _check_loop(self) -> None:
        """Raise `ClientClosed` if the event loop of the connections is over, or is another process's."""
        self._birthplace.check()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        elif self._loop.is_closed():
            raise ClientClosed(
                "this client was used in an event loop that is over, with its connections: make a client in each "
                "asyncio.run"
            )

    def _is_broker(self, url: str) -> bool:
        return any(url.startswith(f"{each}/") for each in self.addresses.all)

    def _timeout_of(self, call: Call, within_seconds: float | None) -> httpx.Timeout:
        bounds = [each for each in (call.timeout_seconds, within_seconds) if each is not None]
        seconds = min([self._timeout_seconds, *bounds])
        connect_seconds = min([self._connect_timeout_seconds, *bounds])
        return httpx.Timeout(seconds, connect=connect_seconds, read=seconds + call.wait_seconds)


def _headers_of(call: Call) -> Mapping[str, str] | None:
    trace = trace_headers() if call.trace is None else call.trace
    return {**trace, **(call.headers or {})} if trace else call.headers


def _watched(call: Call, wait: Wait | None) -> dict[str, Any]:
    """The extensions that make httpx report when the request was sent, if its answer may be held back."""
    if wait is None or not call.wait_seconds:
        return {}

    async def trace(event: str, _: object) -> None:
        if event == _SENT:
            wait.sent(held_back_seconds=call.wait_seconds)

    return {"trace": trace}


def _no_op() -> None:
    """Do nothing: for clients that do not discover brokers."""


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers if HTTP allows them. Raises `InvalidArgument`, without the value, which may be secret."""
    for name, value in headers.items():
        if not _matches(_HEADER_NAME, name):
            raise InvalidArgument(f"{name!r:.80} is not a valid header name: use ASCII letters, digits and -")
        if not _matches(_HEADER_VALUE, value):
            raise InvalidArgument(
                f"the value of header {name} is not valid: use printable ASCII without spaces at its ends"
            )
    return headers


def _matches(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None
