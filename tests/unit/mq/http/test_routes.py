"""The route table: a request is found by its method and path, and says what it needs and how it is treated."""

import re

import pytest

from mq.http import routes
from mq.http.routes import ROUTES, Route, match_of, match_route, methods_of
from mq.security.needs import Need


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_a_request_made_from_a_route_is_found_as_that_route(route: Route) -> None:
    values = [f"{number}" for number in range(route.template.count("{"))]
    made = route.of(*values)
    found = match_route(route.method, made.path)
    assert found == made and found.is_for(route) and found.values == tuple(values)
    assert re.sub(r"\{\w+\}", "X", route.template) == route.of(*["X"] * len(values)).path


def test_what_a_request_needs() -> None:
    assert match_route("GET", "/v1/topics/t/files").need == Need("read", "topic", "t", effect="none")
    assert match_route("PUT", "/v1/topic-groups/all").need == Need("manage", "topic", "all")
    assert match_route("POST", "/v1/topics/t/groups/g/claims").need == Need("consume", "group", "t", "g")
    assert match_route("POST", "/v1/topics/t/segments/3/split").need == Need("manage", "topic", "t", effect="upkeep")


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/nothing", "/v1/topics/t/nothing", "/v1/topics/t/messages/0-1/payload/x"]
)
def test_a_path_of_no_route_is_for_those_who_manage_the_cluster(path: str) -> None:
    match = match_route("GET", path)
    assert match.route is None and match.need == Need("manage", "cluster", effect="none")
    assert match_route("POST", path).need == Need("manage", "cluster")
    assert not methods_of(path)


def test_a_head_is_like_a_get_and_other_methods_are_not() -> None:
    assert match_route("HEAD", "/livez").route is routes.LIVEZ
    assert match_route("PATCH", "/v1/topics/t").route is None
    assert methods_of("/v1/topics/t") == ["DELETE", "GET", "PUT"]


def test_a_name_without_letters_is_served_by_no_hot_path() -> None:
    """The application answers that: it knows what may be meant."""
    assert not match_route("POST", "/v1/topics//messages").is_for(routes.PUBLISH)


def test_the_audit_trail_gets_no_id_of_an_upload() -> None:
    for method in ("PUT", "PATCH"):
        assert match_route(method, "/v1/topics/t/uploads/s3cr3t").text == f"{method} /v1/topics/t/uploads/(id)"
    assert match_route("PATCH", "/v1/topics/t/uploads/s3cr3t/more").text == "PATCH /v1/topics/t/uploads/(id)"
    assert match_route("POST", "/v1/topics/uploads/groups/g/reset").text == "POST /v1/topics/uploads/groups/g/reset"


def test_answers_that_are_refused_when_a_permission_ends() -> None:
    """Streams and sockets look at their permission themselves; changes are answered, since they were made."""
    giving = [route for route in ROUTES if route.of(*["1"] * route.template.count("{")).gives_data]
    assert routes.CLAIM in giving and routes.BROWSE in giving and routes.LIST_TOPICS in giving
    assert not {routes.SUBSCRIBE, routes.SOCKET, routes.PUBLISH, routes.ACK, routes.PUT_TOPIC} & set(giving)


def test_a_request_is_looked_up_once() -> None:
    scope = {"type": "http", "method": "GET", "path": "/v1/topics/t"}
    assert match_of(scope) is match_of(scope)
