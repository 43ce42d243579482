"""What problems do not name, whoever has put them together."""

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from starlette.types import Message

from mq.broker import Broker
from mq.http.hidden_names import HiddenNames
from mq.http.reply import WHOLE_BODY
from mq.security.grants import parse_grants
from mq.security.principal import Principal

PROBLEM = {
    "type": "urn:braidmq:data-damaged",
    "title": "An object of hush",
    "status": 503,
    "detail": "topics/hush/topic.json is damaged: hush has no hush-2 and no hush.",
    "retryable": False,
    "key": "topics/hush/topic.json",
    "nested": [{"hush": "topics/orders-x/topic.json of hush"}],
}
HIDDEN = PROBLEM | {
    "detail": "topics/(hidden)/topic.json is damaged: (hidden) has no hush-2 and no (hidden).",
    "key": "topics/(hidden)/topic.json",
    "nested": [{"hush": "topics/orders-x/topic.json of (hidden)"}],
}


def hidden_names(*, groups: dict[str, str], path: str = "/v1/topics/orders-m", query: bytes = b"") -> HiddenNames:
    broker = cast(Broker, SimpleNamespace(topics=SimpleNamespace(group_of=groups.get)))
    principal = Principal("ann", parse_grants(["topic:orders-*:*"]))
    return HiddenNames(broker, principal, ["orders-m"], {"path": path, "query_string": query})


@pytest.mark.parametrize("groups", [{"orders-m": "hush"}, {}])
def test_neither_the_group_of_a_member_nor_whose_an_object_is(groups: dict[str, str]) -> None:
    assert hidden_names(groups=groups).problem(PROBLEM) == HIDDEN


@pytest.mark.parametrize("guess", ["hush", "push", "hush-2"])
def test_a_guess_is_told_from_no_other(guess: str) -> None:
    """Wherever it stands in the address, however it is written, and how many others stand beside it."""
    problem = {"status": 503, "detail": f"'{guess}' is no marker of topic group 'hush'; orders-m is in it."}
    told = {"status": 503, "detail": "'(hidden)' is no marker of topic group '(hidden)'; orders-m is in it."}
    escaped = "".join(f"%{ord(each):02x}" for each in guess)
    for query in (f"from={guess}", f"from={escaped}", f"from=a,b,{guess}+c"):
        assert hidden_names(groups={"orders-m": "hush"}, query=query.encode()).problem(problem) == told
    path = f"/v1/topics/orders-m/loads/{guess}"
    assert hidden_names(groups={"orders-m": "hush"}, path=path).problem(problem) == told


@pytest.mark.parametrize("status", [400, 404, 409, 422])
@pytest.mark.parametrize("group", ["hush", "push"])
def test_what_a_request_says_is_told_by_its_words_alone(group: str, status: int) -> None:
    """A guess in a body is shown or hidden by where it stands, and not by whether it is the group's name."""
    hidden = hidden_names(groups={"orders-m": group})
    for detail, told in (
        (
            f"hush is no number; topic group '{group}' has 1 segment",
            "hush is no number; topic group '(hidden)' has 1 segment",
        ),
        (f"'push': topic '{group}' has no segment 7", "'push': topic '(hidden)' has no segment 7"),
        (f"get an id from POST /v1/topics/{group}/uploads", "get an id from POST /v1/topics/(hidden)/uploads"),
        (f"create it with PUT /v1/topic-groups/{group}", "create it with PUT /v1/topic-groups/(hidden)"),
        ("x topic group 'hush' y", "x topic group '(hidden)' y"),
        ("topic 'orders-x' is in topic group 'push", "topic 'orders-x' is in topic group '(hidden)"),
        ("topics/hush/topic.json and topics/orders-x/a", "topics/(hidden)/topic.json and topics/orders-x/a"),
    ):
        assert hidden.problem({"status": status, "detail": detail}) == {"status": status, "detail": told}


def test_a_remedy_is_about_what_one_may_observe() -> None:
    hiding = hidden_names(groups={"orders-m": "hush"})
    seen = {"kind": "create-group", "fault": "topic 'orders-m' has no group 'g'", "topic": "orders-m", "group": "g"}
    assert hiding.problem({"status": 404, "remedy": seen})["remedy"] == seen
    remedy = {"kind": "configure-topic-group", "fault": "it is in topic group 'hush'", "topic_group": "hush"}
    hidden = remedy | {"fault": "it is in topic group '(hidden)'", "topic_group": "(hidden)"}
    assert hiding.problem({"status": 409, "remedy": remedy})["remedy"] == hidden


def test_a_refusal_names_what_the_request_has_named() -> None:
    refusal = {"type": "urn:braidmq:forbidden", "status": 403, "detail": "'ann' may not publish topic 'bills'"}
    assert hidden_names(groups={"orders-m": "bills"}).problem(refusal) == refusal


def test_what_one_may_observe_is_shown_and_so_is_what_one_gave() -> None:
    seen = {"detail": "orders-all has topics/orders-x/topic.json, and wrong is no time"}
    assert hidden_names(groups={"orders-m": "orders-all"}, query=b"from=wrong").problem(seen) == seen
    assert hidden_names(groups={}, query=b"from=wrong").problem(seen) == seen


async def sent(*messages: Message) -> list[Message]:
    found: list[Message] = []

    async def send(message: Message) -> None:
        found.append(message)

    hiding = hidden_names(groups={"orders-m": "hush"}).sender(send)
    for message in messages:
        await hiding(message)
    return found


def starting(status: int, media_type: bytes, **more: Any) -> Message:
    headers = [(b"content-type", media_type), (b"content-length", b"999"), (b"retry-after", b"1")]
    return {"type": "http.response.start", "status": status, "headers": headers, **more}


async def test_the_answer_of_another_broker() -> None:
    body = orjson.dumps(PROBLEM)
    wanted = orjson.dumps(HIDDEN)
    (whole,) = await sent(starting(503, b"application/problem+json", **{WHOLE_BODY: body}))
    assert whole[WHOLE_BODY] == wanted
    start, rest = await sent(starting(503, b"application/problem+json"), {"type": "http.response.body", "body": body})
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(wanted)
    assert dict(start["headers"])[b"retry-after"] == b"1"
    assert rest["body"] == wanted


async def test_messages_are_left_as_they_are() -> None:
    messages = [starting(200, b"application/json"), {"type": "http.response.body", "body": b"hush", "more_body": True}]
    assert await sent(*messages) == messages
