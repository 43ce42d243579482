"""The base of the routers of all FastAPI endpoints."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from filer.errors import InvalidInput
from filer.nearest import unknown_name
from mq.http.routes import Route

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class Body(NamedTuple):
    """The JSON body of a request."""

    model: type[BaseModel]
    is_required: bool = True


class ServedRoute(APIRoute):
    """A route of FastAPI that serves one of the table, and the body that its endpoint names."""

    serves: Route | None = None
    body: Body | None = None


class Router(APIRouter):
    """Endpoints that refuse unknown parameters. Each serves a route of the table."""

    def __init__(self, tag: str) -> None:
        super().__init__(tags=[tag], dependencies=[Depends(_refuse_unknown_parameters)], route_class=ServedRoute)

    def serves(
        self, route: Route, *, body: type[BaseModel] | None = None, body_required: bool = True, **options: Any
    ) -> Callable[[Endpoint], Endpoint]:
        """A decorator of the endpoint of that route, whose body is of that model; `options` are those of FastAPI."""
        add = self.api_route(route.template, methods=[route.method], **options)

        def served(endpoint: Endpoint) -> Endpoint:
            add(endpoint)
            made = self.routes[-1]
            assert isinstance(made, ServedRoute)
            made.serves = route
            made.body = None if body is None else Body(body, body_required)
            return endpoint

        return served


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
    body = route.body if isinstance(route, ServedRoute) else None
    return () if body is None else [field.alias or name for name, field in body.model.model_fields.items()]


def _parameters_of(dependant: Dependant) -> Iterator[str]:
    """The names of the query parameters of an endpoint and of all its dependencies."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _parameters_of(inner)
