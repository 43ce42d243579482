"""A client that compares each answer with the OpenAPI document. One that does not fit fails the test that got it.

No answer may have a field that the document does not name: the schemas are closed here. Clients tolerate new fields.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx
import jsonschema_rs
import orjson

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.app import create_asgi
from mq.http.routes import match_route
from tests.support.broker.from_user import from_user

_JSON, _NDJSON, _PROBLEM = "application/json", "application/x-ndjson", "application/problem+json"
_documents: list[dict[str, Any]] = []


class DescribedClient(httpx.AsyncClient):
    """Raises `AssertionError` for an answer that the document does not describe. Of a stream it checks the head."""

    async def send(self, request: httpx.Request, *, stream: bool = False, **how: Any) -> httpx.Response:
        response = await super().send(request, stream=stream, **how)
        # A redirect has led to another place.
        first = response.history[0] if response.history else response
        check_answer(await document(), first, is_whole=not stream)
        return response


async def document() -> dict[str, Any]:
    """The document, which all brokers of a version have. It is made once in a process."""
    if not _documents:
        _documents.append(await _made())
    return _documents[0]


async def _made() -> dict[str, Any]:
    broker = Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), BrokerSettings())
    transport = httpx.ASGITransport(from_user(create_asgi(broker), os.geteuid()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.get("/openapi.json")
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def check_answer(known: Mapping[str, Any], response: httpx.Response, *, is_whole: bool = True) -> None:
    """Raise `AssertionError` if the document does not describe that answer."""
    request = response.request
    # httpx leaves an escaped slash as it is, and the broker does not.
    route = match_route(request.method, request.url.path).route
    if route is None or not route.operation:
        return
    told = f"{request.method} {request.url.path} -> {response.status_code}: {{}}"
    answers = known["paths"][route.template][route.method.lower()]["responses"]
    status = str(response.status_code)
    described = answers.get(status) or answers.get(f"{status[0]}XX")
    assert described is not None, told.format(f"{route.operation} has only {', '.join(answers)}")
    content = _resolved(known, described).get("content", {})
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if request.method == "HEAD" or (not content and not media_type):
        return
    # Probes that may not be served say as much as they may, and problems come in place of any answer.
    place = content.get(media_type) or (_problem(known, media_type) if response.is_error else None)
    assert place, told.format(f"{route.operation} has no {media_type!r}, but {', '.join(content) or 'nothing'}")
    if is_whole:
        _check_body(known, place["schema"], media_type, response, told)


def _check_body(
    known: Mapping[str, Any], schema: Mapping[str, Any], media_type: str, response: httpx.Response, told: str
) -> None:
    if media_type in (_JSON, _PROBLEM):
        texts = [response.content]
    elif media_type == _NDJSON:
        schema, texts = schema["x-line"], response.content.splitlines()
    else:
        return
    validator = _validator(orjson.dumps(schema))
    for text in texts:
        found = next(validator.iter_errors(orjson.loads(text)), None)
        assert found is None, told.format(f"{found}\n{text[:2000]!r}")


def _problem(known: Mapping[str, Any], media_type: str) -> Any:
    return known["components"]["responses"]["Problem"]["content"].get(media_type)


def _resolved(known: Mapping[str, Any], described: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in described:
        return described
    found: Mapping[str, Any] = known["components"]["responses"][described["$ref"].rpartition("/")[2]]
    return found


@cache
def _validator(schema: bytes) -> Any:
    """Made once for each schema in a process."""
    components = {"schemas": _documents[0]["components"]["schemas"]}
    closed = _closed({**orjson.loads(schema), "components": components})
    return jsonschema_rs.Draft202012Validator(closed, validate_formats=True)


def _closed(schema: Any) -> Any:
    """The schema, in which each object has the named properties alone."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _closed(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made
