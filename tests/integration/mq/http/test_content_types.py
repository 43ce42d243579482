"""Which content types of a publish are several messages, and which are one value."""

import pytest

from tests.support.broker.http_broker import HttpBroker
from tests.support.broker.publish_paths import is_fast as is_fast

MESSAGES = "/v1/topics/t/messages"
ENVELOPE = b'{"messages": [{"value": "a"}, {"value": "b"}]}'
LINES = b'{"value": "a"}\n{"value": "b"}\n'


async def values(broker: HttpBroker, address: str, body: bytes, headers: dict[str, str]) -> list[str]:
    (await broker.client.put("/v1/topics/t")).raise_for_status()
    (await broker.client.post(address, content=body, headers=headers)).raise_for_status()
    return [message["value"] for message in (await broker.client.get(MESSAGES)).json()["messages"]]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", ENVELOPE),
        ("text/json", ENVELOPE),
        ("Text/JSON; charset=utf-8", ENVELOPE),
        ("application/x-json", ENVELOPE),
        ("application/x-ndjson", LINES),
        ("application/ndjson", LINES),
        ("application/jsonl", LINES),
        ("application/x-jsonlines", LINES),
    ],
)
async def test_several_messages_by_any_name_of_their_type(
    memory_broker: HttpBroker, content_type: str, body: bytes
) -> None:
    assert await values(memory_broker, MESSAGES, body, {"content-type": content_type}) == ["a", "b"]


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        (MESSAGES, {"content-type": "application/cloudevents+json"}),
        (MESSAGES, {"content-type": "application/octet-stream"}),
        (f"{MESSAGES}?key=k", {}),
    ],
)
async def test_what_looks_like_several_messages_is_one_value_if_the_request_says_so(
    memory_broker: HttpBroker, address: str, headers: dict[str, str]
) -> None:
    assert await values(memory_broker, address, ENVELOPE, headers) == [ENVELOPE.decode()]


async def test_other_json_without_a_type_is_a_value(memory_broker: HttpBroker) -> None:
    assert await values(memory_broker, MESSAGES, b'{"message": 1}', {}) == ['{"message": 1}']


async def test_one_value_is_json_text_in_a_topic_of_json_or_a_text_if_the_request_says_so(
    memory_broker: HttpBroker,
) -> None:
    await memory_broker.client.put("/v1/topics/j", json={"value_type": "json"})
    path, text = "/v1/topics/j/messages", {"content-type": "text/plain", "braid-value": "text"}
    for body, headers in ((b"123", {"content-type": "text/plain"}), (b"123", text), (b"now", text)):
        (await memory_broker.client.post(path, content=body, headers=headers)).raise_for_status()
    for body, headers in (
        (b"\xff", text),
        (b"now", {"content-type": "text/plain"}),
        (b"1", text | {"braid-value": "x"}),
    ):
        assert (await memory_broker.client.post(path, content=body, headers=headers)).status_code == 422
    found = (await memory_broker.client.get(path)).json()["messages"]
    assert [message["value"] for message in found] == [123, "123", "now"]
