"""The FastAPI app for everything but the hot paths, and the whole ASGI app of a broker."""

import logging
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from filer.errors import BraidError
from filer.keys import NAME_RULE
from mq.authorizer import AllowAny, AllowLoopback, Authorizer
from mq.broker import Broker
from mq.http.cluster import cluster_router
from mq.http.dispatcher import Dispatcher, hot_methods
from mq.http.files import files_router
from mq.http.history import history_router
from mq.http.loads import loads_router
from mq.http.messages import messages_router
from mq.http.openapi import describe_hot_paths
from mq.http.positions import positions_router
from mq.http.problems import Problem, problem_of
from mq.http.reshaping import reshaping_router
from mq.http.routers import add_routes
from mq.http.subscribe import subscribe_router
from mq.http.topics import topics_router
from mq.http.uploads import uploads_router
from mq.version import VERSION

METHODS = ("DELETE", "GET", "POST", "PUT")
_log = logging.getLogger(__name__)


def create_asgi(broker: Broker, authorizer: Authorizer | None = None) -> Dispatcher:
    """The ASGI app of a broker; its settings choose the authorizer where none is handed in."""
    chosen = authorizer or (AllowAny() if broker.settings.authorizer == "any" else AllowLoopback())
    return Dispatcher(broker, chosen, create_app(broker))


def create_app(broker: Broker) -> FastAPI:
    """The framework's part."""
    app = FastAPI(
        title="BraidMQ",
        version=VERSION,
        description="A message queue whose log is a table.",
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    routers = (
        topics_router,
        reshaping_router,
        history_router,
        messages_router,
        positions_router,
        subscribe_router,
        files_router,
        uploads_router,
        loads_router,
        cluster_router,
    )
    add_routes(app, (router(broker) for router in routers))
    app.add_exception_handler(BraidError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_error)
    describe_hot_paths(app)
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.status == 503 and request.method == "GET":
        problem = replace(problem, retryable=True)
    if problem.status == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _response(problem)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("query", "path"))
    malformed = first["type"] in ("json_invalid",)
    detail = f"{place}: {first['msg']}" + (
        f", not {first['input']!r:.80}" if "input" in first and not malformed else ""
    )
    title = "The request does not parse" if malformed else "The request makes no sense"
    return _response(Problem("invalid-request", title, 400 if malformed else 422, detail))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        detail = f"{request.url.path} does not take {request.method}"
        response = _response(Problem("method-not-allowed", "The method is not allowed", 405, detail))
        response.headers["allow"] = ", ".join(_methods(request))
        return response
    if error.status_code == 404:
        path = request.url.path
        rule = f" (a topic's name is {NAME_RULE})" if path.startswith("/v1/topics/") else ""
        detail = f"no such path: {path:.200}{rule}; see /docs"
        return _response(Problem("not-found", "There is nothing here", 404, detail))
    slug = "invalid-request" if error.status_code < 500 else "internal"
    return _response(Problem(slug, "The request failed", error.status_code, str(error.detail)))


def _methods(request: Request) -> list[str]:
    """All methods of a path; the framework would name those of the first endpoint alone."""
    methods = hot_methods(request.url.path)
    for method in METHODS:
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            methods.append(method)
    return methods


def _response(problem: Problem) -> Response:
    headers = {name.decode(): value.decode() for name, value in problem.headers()}
    return Response(problem.body(), problem.status, headers)
