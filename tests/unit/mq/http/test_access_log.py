"""What the access log shows of paths: never what only its client may know."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from filer.event_log import Event
from mq.http.middleware.access_log import MOST_PARTS, AccessLog, shown, words_of
from mq.http.reply import WHOLE_BODY

WORDS = words_of(["/v1/topics/{topic}/segments/{segment}/messages", "/v1/topics/{topic}/uploads/{id}", "/readyz"])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/topics/birds/messages", ("/v1/topics/birds/messages", "birds")),
        ("/v1/topics/birds/segments/3/messages", ("/v1/topics/birds/segments/3/messages", "birds")),
        ("/v1/topics/birds/uploads/01J.secret", ("/v1/topics/birds/uploads/*", "birds")),
        ("/v1/topics/topics/topics/x", ("/v1/topics/topics/topics/*", "topics")),
        ("/v1/topics/a b/messages", ("/v1/topics/*/messages", None)),
        ("/v1/topics", ("/v1/topics", None)),
        ("/readyz", ("/readyz", None)),
        ("/", ("/", None)),
        ("", ("/", None)),
        ("*", ("/", None)),
        ("/wp-admin/x\n", ("/*/*", None)),
        ("/v1" + "/topics" * 100, ("/v1" + "/topics" * (MOST_PARTS - 1), "topics")),
    ],
)
def test_paths_as_the_log_has_them(path: str, told: tuple[str, str | None]) -> None:
    assert shown(path, WORDS) == told


@given(st.text(max_size=300))
def test_nothing_is_shown_but_words_numbers_and_the_topic(path: str) -> None:
    told, topic = shown(path, WORDS)
    parts = told.split("/")
    assert set(parts) - {topic, ""} <= WORDS | {"*"} | {part for part in parts if part.isdecimal()}
    assert len(told) <= 200 + 20 * MOST_PARTS


HEADS: list[list[Message]] = [
    [{"type": "http.response.start", "status": 201, "headers": (), WHOLE_BODY: b"four"}],
    [
        {"type": "http.response.start", "status": 201, "headers": ()},
        {"type": "http.response.body", "body": b"fo", "more_body": True},
        {"type": "http.response.body", "body": b"ur"},
    ],
]


@pytest.mark.parametrize("answer", HEADS, ids=["one message", "several"])
async def test_all_of_an_answer_is_counted(answer: list[Message], caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer:
            await send(message)

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    sent: list[Message] = []
    caplog.set_level(logging.INFO)
    await AccessLog(app, WORDS, lambda: 0.0)({"type": "http", "method": "GET", "path": "/"}, receive, send)
    fields: dict[str, Any] = next(dict(each.msg.fields) for each in caplog.records if isinstance(each.msg, Event))
    assert (fields["status"], fields["is_whole"], fields["sent_bytes"]) == (201, True, 4)
    assert sent == answer
