"""A client that goes away in the middle of its body is no error of the broker, and none is logged."""

import logging
from typing import NoReturn

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from mq.http.json_body import read_body
from mq.http.middleware.failures import Failures
from mq.http.reply import BrokenOff

SCOPE = {"type": "http", "method": "POST", "path": "/v1/topics/t/groups/g/commits", "headers": [], "query_string": b""}


async def reads_its_body(scope: Scope, receive: Receive, send: Send) -> None:
    await read_body(Request(scope, receive))


async def gone() -> Message:
    return {"type": "http.disconnect"}


async def nobody(message: Message) -> NoReturn:
    raise AssertionError(f"nobody is there to be answered: {message}")


async def test_a_body_that_breaks_off_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(BrokenOff) as caught:
        await Failures(reads_its_body)(SCOPE, gone, nobody)
    assert isinstance(caught.value.__cause__, ClientDisconnect)
    assert not caplog.records
