"""How endpoints answer: JSON, Arrow or a problem, by one `Reply`, whether they are served by ASGI or by FastAPI."""

import logging
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple

import orjson
from fastapi.responses import Response
from starlette.types import Scope, Send

from mq.bodies.intake import ClientGone
from mq.http.problems import Problem, problem_of

JSON = "application/json"
JSON_HEADERS = ((b"content-type", JSON.encode()),)
_log = logging.getLogger(__name__)


class Reply(NamedTuple):
    """An HTTP response: its body, its status, and its headers without the length."""

    body: bytes
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = JSON_HEADERS


async def serve(work: Awaitable[Reply], scope: Scope, send: Send) -> None:
    """Send the reply that the work returns, or the problem that it raises. Send nothing if the client has gone."""
    try:
        body, status, headers = await work
    except ClientGone:
        return
    except Exception as error:
        body, status, headers = problem_reply(logged_problem(error, scope["method"], scope["path"]))
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def logged_problem(error: Exception, method: str, path: str) -> Problem:
    """The problem by which to answer that error. An error that has no problem of its own is logged."""
    problem = problem_of(error)
    if problem.status == 500:
        _log.error("%s %s failed", method, path, exc_info=error)
    return problem


def problem_reply(problem: Problem) -> Reply:
    """The problem as `application/problem+json`."""
    return Reply(problem.body(), problem.status, problem.headers())


def json_response(document: Any, *, status: int = 200) -> Response:
    """A JSON document, as an endpoint of FastAPI returns it."""
    return Response(orjson.dumps(document), status, media_type=JSON)


def problem_response(problem: Problem) -> Response:
    """A problem, as an endpoint of FastAPI returns it."""
    body, status, headers = problem_reply(problem)
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})
