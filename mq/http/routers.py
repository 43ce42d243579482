"""The base of the routers of all FastAPI endpoints."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from filer.errors import InvalidInput
from filer.nearest import unknown_name
from mq.forms.formats import JSON
from mq.http.routes import Route

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class Router(APIRouter):
    """Endpoints that refuse unknown parameters. Each serves a route of the table."""

    def __init__(self, tag: str) -> None:
        super().__init__(tags=[tag], dependencies=[Depends(_refuse_unknown_parameters)])

    def serves(self, route: Route, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """A decorator of the endpoint of that route; `options` are those of FastAPI."""
        return self.api_route(route.template, methods=[route.method], **options)


def new_router(tag: str) -> Router:
    """A router for endpoints of that tag."""
    return Router(tag)


def add_routes(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Make the app serve these routers.

    `include_router` would analyse each endpoint again at the first request to its router. Publishers would have to wait
    for that.
    """
    for router in routers:
        app.router.routes.extend(router.routes)


async def _refuse_unknown_parameters(request: Request) -> None:
    """Refuse a misspelt query parameter; it is never ignored."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = list(_parameters_of(route.dependant))
    for name in request.query_params:
        if name not in known:
            if name in _body_fields(route):
                raise InvalidInput(f"{name!r} is no parameter here: send it in the body, which is JSON")
            raise InvalidInput(unknown_name("parameter", name, known))


def _body_fields(route: APIRoute) -> Iterable[str]:
    """The names of the fields of a JSON body, if an endpoint has one."""
    content = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    fields: Iterable[str] = content.get(JSON, {}).get("schema", {}).get("properties", ())
    return fields


def _parameters_of(dependant: Dependant) -> Iterator[str]:
    """The names of the query parameters of an endpoint and of all its dependencies."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _parameters_of(inner)
