"""The OpenAPI document has all that the route table has, and the fields that the code knows."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from filer.topic.topic_config import AT_CREATION, TopicConfig
from groups.settings import GroupSettings
from mq.administration.topic_groups import SPLITTABLE, TOPICS
from mq.base.problem_kinds import KINDS
from mq.bodies.json_body import MESSAGE_FIELDS, REF_FIELDS
from mq.http.endpoints.publish import _RAW_PARAMETERS
from mq.http.problems import SLUGS
from mq.http.routes import ROUTES
from mq.security.policy.newer import FIELDS
from tests.support.broker.described_answers import document

HTTP_PAGE = Path(__file__).parents[4] / "docs" / "http.md"
_PEERS_ONLY = {"copy-gap", "copy-refused", "out-of-touch"}


@pytest.fixture
async def known() -> dict[str, Any]:
    return await document()


@pytest.fixture
async def schemas(known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = known["components"]["schemas"]
    return found


def operations(known: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in known["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


async def test_each_operation_has_the_id_of_its_route(known: dict[str, Any]) -> None:
    described = {(method, path): operation["operationId"] for method, path, operation in operations(known)}
    assert described == {(route.method, route.template): route.operation for route in ROUTES if route.operation}
    assert Counter(described.values()).most_common(1)[0][1] == 1
    assert all(re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", each) for each in described.values())
    undescribed = {route.template for route in ROUTES if not route.operation}
    assert undescribed == {"/docs", "/docs/{name}", "/openapi.json"}


async def test_every_body_and_every_answer_has_a_schema(known: dict[str, Any]) -> None:
    """Objects by name: nothing is written out twice."""
    for method, path, operation in operations(known):
        places = [operation["requestBody"]] if "requestBody" in operation else []
        places += [each for each in operation["responses"].values() if "$ref" not in each]
        for place in places:
            for media_type, content in place.get("content", {}).items():
                schema = content["schema"]
                assert "$ref" in schema or "oneOf" in schema or schema["type"] == "string", (method, path, media_type)
        if method == "PUT" or (method == "POST" and path.endswith(("/claims", "/acks", "/messages"))):
            assert "requestBody" in operation, (method, path)


async def test_every_name_is_there_and_used(known: dict[str, Any], schemas: dict[str, Any]) -> None:
    used = set(re.findall(r"#/components/schemas/(\w+)", str(known)))
    assert used == schemas.keys()


async def test_problems_are_those_that_the_page_has(known: dict[str, Any], schemas: dict[str, Any]) -> None:
    kinds = {f"urn:braidmq:{kind}" for kind in KINDS}
    assert set(schemas["Problem"]["properties"]["type"]["enum"]) == kinds
    rows = re.findall(r"(?m)^\| (`[^|]+`) \| \d{3} \|", HTTP_PAGE.read_text().partition("\n## Problems\n")[2])
    assert {kind for row in rows for kind in re.findall(r"`([^`]+)`", row)} == set(KINDS)
    assert set(SLUGS) - _PEERS_ONLY <= set(KINDS)
    for method, path, operation in operations(known):
        for status in ("4XX", "500"):
            assert operation["responses"][status] == {"$ref": "#/components/responses/Problem"}, (method, path)
        assert "503" in operation["responses"]


async def test_who_may_call(known: dict[str, Any]) -> None:
    """A broker without tokens takes requests without one. Pages open streams with tickets."""
    assert known["security"] == [{}, {"bearer": []}]
    other = {
        operation["operationId"]: operation["security"]
        for _, _, operation in operations(known)
        if "security" in operation
    }
    with_ticket = [*known["security"], {"ticket": []}]
    assert other == {
        "getLivez": [],
        "getHealthz": [],
        "getReadyz": [],
        "subscribe": with_ticket,
        "openSocket": with_ticket,
    }


async def test_requests_have_the_fields_that_are_checked(known: dict[str, Any], schemas: dict[str, Any]) -> None:
    fields = {name: set(schema.get("properties", ())) for name, schema in schemas.items()}
    assert fields["OutgoingMessage"] == set(MESSAGE_FIELDS)
    assert fields["UploadReference"] == set(REF_FIELDS)
    assert fields["TopicBody"] == {*TopicConfig.model_fields, AT_CREATION}
    assert fields["TopicGroupBody"] == {*fields["TopicBody"], TOPICS, SPLITTABLE}
    assert fields["GroupBody"] == {*GroupSettings.model_fields, "from"}
    assert fields["PolicyBody"] == {"version", *FIELDS}
    entries = ("PolicyGrants", "RevokedToken", "RevokedPrincipal", "PolicyQuota")
    assert [fields[name] for name in entries] == [set(each) for each in FIELDS.values()]
    publish = known["paths"]["/v1/topics/{topic}/messages"]["post"]["parameters"]
    assert {each["name"] for each in publish if each["in"] == "query"} == set(_RAW_PARAMETERS)


async def test_each_parameter_is_described(known: dict[str, Any]) -> None:
    for _, _, operation in operations(known):
        for each in operation.get("parameters", ()):
            assert each["description"] and each["schema"].get("type"), (operation["operationId"], each["name"])


async def test_what_may_be_missing_and_what_may_be_null(schemas: dict[str, Any]) -> None:
    """All fields of an answer are required but those that may be missing; of settings in a request, none is."""
    segment, config = schemas["Segment"], schemas["TopicConfig"]
    assert set(segment["properties"]) - set(segment["required"]) == {"given_up", "traffic", "hot_slot"}
    assert set(config["required"]) == set(config["properties"])
    assert schemas["Retention"]["properties"]["seconds"]["type"] == ["number", "null"]
    assert "required" not in schemas["TopicBody"] and "required" not in schemas["PartialTarget"]
    assert "default" not in str(schemas["ClaimBody"]["properties"]["max"].keys())
    assert schemas["ClaimBody"]["properties"]["max"]["description"].endswith("Default: 100.")


async def test_clients_tolerate_new_fields_of_answers(schemas: dict[str, Any]) -> None:
    for name in ("Topic", "TopicConfig", "Scaling", "Message", "QueueGroup", "Problem", "Cluster", "PolicyGrants"):
        assert "additionalProperties" not in schemas[name], name
    assert schemas["OutgoingMessage"]["additionalProperties"] is False
