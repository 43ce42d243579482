"""Makes the document: the operations of the route table, what FastAPI knows of their parameters, and the components."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.routing import BaseRoute

from mq.base.version import VERSION
from mq.forms.formats import JSON
from mq.http.openapi.answers import ANSWERS, BODIES, TEXT, Described
from mq.http.openapi.hot_paths import HOT_BODIES, HOT_PATHS
from mq.http.openapi.problems import Problem
from mq.http.openapi.schemas import Schema, components, plain, reference
from mq.http.problems import MEDIA_TYPE
from mq.http.routers import Body, ServedRoute
from mq.http.routes import ROUTES, SOCKET, SUBSCRIBE, Route

DESCRIPTION = "A message queue whose log is a table."
_ANYBODY: dict[str, list[str]] = {}
_SECURITY = [_ANYBODY, {"bearer": []}]
_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token, where the broker asks for tokens (`--authorizer tokens`). Other brokers take none.",
    },
    "ticket": {
        "type": "apiKey",
        "in": "query",
        "name": "ticket",
        "description": "A ticket, which stands for the token that asked for it: for pages that can send no header.",
    },
}
_PARAMETERS = {
    "after": "The `next` of the page before.",
    "group": "The name of the group.",
    "internal": "Whether to list the brokers' own topics too.",
    "last-event-id": "Where a browser's stream has ended; counts before `marker`.",
    "limit": "The most entries of a page.",
    "marker": "Where to go on: the marker of an answer.",
    "max_bytes": "About the most bytes of messages to return.",
    "member_epoch": "The start of the member; without it, whichever there is.",
    "member_id": "The name of the member.",
    "message_id": "The id of the message, `<segment>-<offset>`.",
    "name": "The id or the name of the broker.",
    "offset": "The first offset to return.",
    "segment": "The id of the segment.",
    "state": "Which messages: those that wait, those that consumers have, or dead letters.",
    "topic": "The name of the topic.",
}
"""What parameters mean whose endpoints do not say it."""
_PROBLEM = {"$ref": "#/components/responses/Problem"}
# Any broker may have to ask another one, which refuses (502) or does not answer (503).
_PROBLEMS = dict.fromkeys(("4XX", "500", "502", "503"), _PROBLEM)


def document_of(served: Sequence[BaseRoute]) -> dict[str, Any]:
    """The document of an app with these routes of FastAPI."""
    known = get_openapi(title="BraidMQ", version=VERSION, description=DESCRIPTION, routes=served)["paths"]
    named = {each.serves: each.body for each in served if isinstance(each, ServedRoute)}
    bodies = {route: body for route in ROUTES if (body := BODIES.get(route) or named.get(route)) is not None}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        if route.operation:
            described = HOT_PATHS.get(route) or known[route.template][route.method.lower()]
            operation = _operation(route, described, bodies.get(route))
            paths.setdefault(route.template, {})[route.method.lower()] = operation
    taken = [body.model for body in bodies.values()]
    models: list[type[BaseModel]] = [Problem, *HOT_BODIES, *taken, *_models(ANSWERS.values())]
    return {
        "openapi": "3.1.0",
        "info": {"title": "BraidMQ", "description": DESCRIPTION, "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": components(models),
            "responses": {"Problem": _problem()},
            "securitySchemes": _SCHEMES,
        },
        "security": _SECURITY,
    }


def _operation(route: Route, known: Mapping[str, Any], body: Body | None) -> Schema:
    """An operation: what is known of it by its endpoint, with its id, its body, its answers and who may call it."""
    content = {JSON: {"schema": reference(body.model)}} if body else {}
    asked = {"requestBody": {"required": body.is_required, "content": content}} if body else {}
    taken = {name: known[name] for name in ("tags", "description", "requestBody") if name in known}
    parameters = [_parameter(each) for each in known.get("parameters", ())]
    return {
        "operationId": route.operation,
        "summary": re.sub("[A-Z]", lambda letter: f" {letter[0].lower()}", route.operation).capitalize(),
        **taken,
        **({"parameters": parameters} if parameters else {}),
        **asked,
        "responses": _responses(route),
        **_security(route),
    }


def _parameter(known: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter. None of the query can be null: it is left out then."""
    schema = dict(known["schema"])
    match schema.pop("anyOf", None):
        case [dict(kind), {"type": "null"}]:
            schema = {**kind, **schema}
        case list(kinds):
            schema["anyOf"] = kinds
    default = {"default": schema.pop("default")} if schema.get("default") is not None else {}
    said = schema.pop("description", None) or _PARAMETERS.get(known["name"])
    described = {} if said is None else {"description": said}
    return {**described, **known, "schema": {**plain(schema), **default}}


def _responses(route: Route) -> Schema:
    answers = {str(status): _response(each) for status, each in ANSWERS[route].items()}
    return {**answers, **{status: each for status, each in _PROBLEMS.items() if status not in answers}}


def _response(answer: Described) -> Schema:
    content = {name: {"schema": schema} for name, schema in answer.content.items()}
    headers = {name: {"description": said, "schema": TEXT} for name, said in answer.headers.items()}
    return {
        "description": answer.description,
        **({"headers": headers} if headers else {}),
        **({"content": content} if content else {}),
    }


def _security(route: Route) -> Schema:
    """Who may call it, where that is not as for most: probes answer everybody, pages open streams with tickets."""
    if route.is_probe:
        return {"security": []}
    return {"security": [*_SECURITY, {"ticket": []}]} if route in (SUBSCRIBE, SOCKET) else {}


def _problem() -> Schema:
    return {
        "description": "The broker refuses the request, or fails. The problem says why, and what would be right.",
        "headers": {
            "Retry-After": {
                "description": "There if `retryable` is true: after how many seconds.",
                "schema": {"type": "integer"},
            }
        },
        "content": {MEDIA_TYPE: {"schema": reference(Problem)}},
    }


def _models(answers: Iterable[Mapping[int, Described]]) -> list[type[BaseModel]]:
    return [model for by_status in answers for each in by_status.values() for model in each.models]
