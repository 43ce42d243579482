"""The FastAPI app, which serves all but the hot paths, and the whole ASGI app of a broker."""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from filer import request_ids
from filer.errors import BraidError, UnreadableObject
from filer.keys import NAME_RULE
from filer.nearest import SHOWN_CHARS
from filer.plain_messages import plain_message
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.dispatcher import Dispatcher
from mq.http.endpoints.cluster import cluster_router
from mq.http.endpoints.docs_page import docs_router
from mq.http.endpoints.files import files_router
from mq.http.endpoints.groups import groups_router
from mq.http.endpoints.history import history_router
from mq.http.endpoints.loads import loads_router
from mq.http.endpoints.members import members_router
from mq.http.endpoints.messages import messages_router
from mq.http.endpoints.policy import policy_router
from mq.http.endpoints.positions import positions_router
from mq.http.endpoints.publish import Publisher
from mq.http.endpoints.split_merge import split_merge_router
from mq.http.endpoints.subscribe import subscribe_router
from mq.http.endpoints.tickets import tickets_router
from mq.http.endpoints.topic_groups import topic_groups_router
from mq.http.endpoints.topics import topics_router
from mq.http.endpoints.uploads import uploads_router
from mq.http.endpoints.verification import verification_router
from mq.http.fast_path.fast_publisher import FastPublisher
from mq.http.guard import Guard
from mq.http.middleware.access_log import AccessLog, words_of
from mq.http.middleware.audited import Audited
from mq.http.middleware.failures import Failures
from mq.http.middleware.redeemed import Redeemed
from mq.http.middleware.request_ids import RequestIds
from mq.http.middleware.traces import Traces
from mq.http.openapi.endpoint import openapi_router
from mq.http.peer_dispatcher import PeerDispatcher
from mq.http.problems import Problem
from mq.http.reply import logged_problem, problem_response
from mq.http.routers import add_routes
from mq.http.routes import METHODS, ROUTES, methods_of
from mq.http.sockets.endpoint import socket_router
from mq.http.tickets import Tickets
from mq.peers.calls import CALLS, PREFIX

# The place of the word that names the request in a path like /v1/topics/birds/messages.
_WORD = 4


# The headers that pages of other origins may read, besides those that browsers show in any case.
_EXPOSED_HEADERS = (
    "allow",
    "braid-end-offset",
    "braid-marker",
    "braid-next-offset",
    "braid-sealed",
    "retry-after",
    request_ids.HEADER,
)


def create_asgi(broker: Broker) -> ASGIApp:
    """The ASGI app of a broker."""
    return _asgi(broker, _guard(broker), Publisher(broker))


def create_served(broker: Broker) -> tuple[ASGIApp, FastPublisher]:
    """The ASGI app of a broker, and the fast path that serves most publishes before it."""
    guard, publisher = _guard(broker), Publisher(broker)
    return _asgi(broker, guard, publisher), FastPublisher(broker, guard, publisher)


def create_peer_asgi(broker: Broker) -> ASGIApp:
    """The ASGI app of a broker's listener for other brokers."""
    return _around(PeerDispatcher(broker), broker, _guard(broker), ())


def _guard(broker: Broker) -> Guard:
    return Guard(broker.settings, broker.access.credentials)


def _asgi(broker: Broker, guard: Guard, publisher: Publisher) -> ASGIApp:
    fast_api = create_app(broker)
    tickets = Tickets(broker.clock)
    add_routes(fast_api, [socket_router(broker, guard, publisher), tickets_router(broker, tickets)])
    paths = [route.template for route in ROUTES]
    return _around(Dispatcher(broker, guard, publisher, fast_api), broker, guard, paths, tickets)


def _around(
    app: ASGIApp, broker: Broker, guard: Guard, paths: Iterable[str], tickets: Tickets | None = None
) -> ASGIApp:
    """The app with records, traces and logs of requests. The log may name `paths`, besides those of brokers.

    With `tickets`, web pages may be its clients.
    """
    settings = broker.settings
    if broker.audit is not None:
        app = Audited(app, broker.audit, guard)
    if tickets is not None and broker.access.credentials is not None:
        app = Redeemed(app, tickets)
    if broker.tracer.is_on:
        app = Traces(app, broker.tracer)
    if tickets is not None and settings.cors_origins:
        app = _with_cors(app, settings)
    if settings.access_log == "on":
        words = words_of([*paths, PREFIX, *(call.name for call in CALLS)])
        app = AccessLog(app, words, broker.clock.monotonic_seconds)
    return RequestIds(app, broker.new_request_id)


def _with_cors(app: ASGIApp, settings: BrokerSettings) -> ASGIApp:
    """The app for pages of other origins too. Permissions are decided as ever.

    It answers OPTIONS itself, and lets pages of these origins read the answers.
    """
    return CORSMiddleware(
        app,
        allow_origins=settings.cors_origins,
        allow_methods=[*METHODS, "HEAD"],
        allow_headers=["*"],
        expose_headers=_EXPOSED_HEADERS,
        # A page of the internet from a named origin may use a broker in a private network. Browsers ask for that in the
        # same preflight, and would take a no for all of it.
        allow_private_network=True,
    )


def create_app(broker: Broker) -> FastAPI:
    """The FastAPI app of a broker."""
    app = FastAPI(
        redirect_slashes=False,
        # FastAPI's own pages run scripts from a CDN. The document has more than FastAPI knows.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    # A request is compared with one route after the other: the most frequent ones come first.
    routers = (
        messages_router,
        groups_router,
        topics_router,
        topic_groups_router,
        split_merge_router,
        history_router,
        positions_router,
        subscribe_router,
        files_router,
        uploads_router,
        loads_router,
        members_router,
        verification_router,
        cluster_router,
        policy_router,
    )
    add_routes(app, (*(router(broker) for router in routers), docs_router(), openapi_router(app.router.routes)))
    app.add_exception_handler(BraidError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_middleware(Failures)
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    problem = logged_problem(error, request.method, request.url.path)
    # A request that comes here publishes no message.
    if problem.status == 503 and not isinstance(error, UnreadableObject):
        problem = replace(problem, retryable=True)
    return problem_response(problem)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part not in ("query", "path"))
    malformed = first["type"] in ("json_invalid",)
    shown = "input" in first and first["type"] != "missing" and not malformed
    given = f", not {first['input']!r:.80}" if shown else ""
    detail = f"{field}: {plain_message(first['msg'])}{given}"
    title = "The request cannot be parsed" if malformed else "The request is not valid"
    return problem_response(Problem("invalid-request", title, 400 if malformed else 422, detail))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = ", ".join(methods_of(request.url.path))
        detail = f"{request.url.path} does not take {request.method}, but {allowed}"
        response = problem_response(Problem("method-not-allowed", "The method is not allowed", 405, detail))
        response.headers["allow"] = allowed
        return response
    if error.status_code == 404:
        detail = f"no such path: {request.url.path:.200}{_hint(request)}; see /docs"
        return problem_response(Problem("not-found", "There is nothing here", 404, detail))
    slug = "invalid-request" if error.status_code < 500 else "internal"
    return problem_response(Problem(slug, "The request failed", error.status_code, str(error.detail)))


def _hint(request: Request) -> str:
    """A hint on what may be wrong in a path below topics: a word, or a name that has a slash in it or is empty."""
    words = request.url.path.split("/")
    if words[1:3] != ["v1", "topics"]:
        return ""
    if len(words) > _WORD and words[3]:
        routes = [route.template.split("/") for route in ROUTES]
        known = {each[_WORD] for each in routes if each[1:_WORD] == ["v1", "topics", "{topic}"] and each[_WORD:]}
        if near := get_close_matches(words[_WORD][:SHOWN_CHARS], known, n=1, cutoff=0.7):
            return f" (did you mean {near[0]!r}?)"
    return f" (a topic's name has {NAME_RULE})" if words[3:] else ""
