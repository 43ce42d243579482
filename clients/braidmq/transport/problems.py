"""Turns unsuccessful answers into errors with `Problem` documents."""

from typing import Any

import httpx
import orjson

from braidmq.errors import BraidMQError, NotABroker, Problem, error_of

_TYPE_PREFIX = "urn:braidmq:"
_STANDARD = {"type", "title", "status", "detail", "retryable"}
_GATEWAY_STATUSES = (502, 503, 504)
# Brokers before version 0.2 call these final for any request that writes, also for claims and acks.
_REPEATABLE_UNLESS_PUBLISHING = ("store-unavailable", "owner-silent")


def refusal(response: httpx.Response, *, publishing: bool) -> BraidMQError:
    """Return the exception for a complete answer that is not a success."""
    document = _document(response)
    if document is None and response.status_code < 500:
        return NotABroker(
            f"{address_of(response)} answered with {response.status_code} {response.reason_phrase}: is a BraidMQ "
            "broker listening there?"
        )
    if document is None:
        problem = bare_problem(response, retryable=response.status_code in _GATEWAY_STATUSES and not publishing)
    else:
        problem = _problem(document, response.status_code, publishing=publishing)
    return error_of(problem, publishing=publishing, retry_after_seconds=_retry_after_seconds(response))


def told_problem(document: dict[str, Any]) -> BraidMQError:
    """Return the exception for a problem that a broker reports in the middle of an answer."""
    problem = _problem(document, int(document.get("status", 500)), publishing=False)
    return error_of(problem, publishing=False, retry_after_seconds=0.0)


def bare_problem(response: httpx.Response, *, retryable: bool) -> Problem:
    """Return a problem for an answer without one: from a gateway, or from the object store."""
    return Problem(
        slug="http",
        title=response.reason_phrase,
        status=response.status_code,
        detail=f"{address_of(response)} answered with {response.reason_phrase}",
        retryable=retryable,
    )


def json_of(response: httpx.Response) -> Any:
    """Return the JSON body of a successful answer. Raises `NotABroker` if it is not JSON."""
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError as failure:
        raise NotABroker(
            f"{address_of(response)} answered with something other than JSON: is a BraidMQ broker listening there?"
        ) from failure


def _document(response: httpx.Response) -> dict[str, Any] | None:
    try:
        document = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return None
    is_problem = isinstance(document, dict) and str(document.get("type", "")).startswith(_TYPE_PREFIX)
    return document if is_problem else None


def _problem(document: dict[str, Any], status: int, *, publishing: bool) -> Problem:
    """A request that publishes nothing may be repeated, as after a lost answer: the broker need not say so then."""
    slug = document["type"].removeprefix(_TYPE_PREFIX)
    return Problem(
        slug=slug,
        title=str(document.get("title", "")),
        status=status,
        detail=str(document.get("detail", "")),
        retryable=document.get("retryable") is True or (not publishing and slug in _REPEATABLE_UNLESS_PUBLISHING),
        extras={name: value for name, value in document.items() if name not in _STANDARD},
    )


def _retry_after_seconds(response: httpx.Response) -> float:
    """The pause that the broker asks for, in seconds. A date, which brokers never send, counts as 0."""
    try:
        return max(0.0, float(response.headers.get("retry-after", "0")))
    except ValueError:
        return 0.0


def address_of(response: httpx.Response) -> str:
    """Return the address of the broker that sent the answer."""
    url = response.request.url
    return f"{url.scheme}://{url.netloc.decode()}"
