import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from braidmq import AsyncClient, InvalidArgument, Unauthenticated
from braidmq.transport.tokens import LOOK_SECONDS, Token, token_of
from braidmq.transport.transport import Call
from filer.clock import ManualClock, settle
from tests.support.instant_clock import InstantClock


def test_a_token_goes_into_the_header() -> None:
    clock = InstantClock()
    assert Token("a.b.c", None, clock).headers() == {"authorization": "Bearer a.b.c"}
    assert Token(None, None, clock).headers() == {}


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("a b", "is no token: a token has printable ASCII characters and no spaces"),
        ("ä", "is no token: a token has printable ASCII characters and no spaces"),
        ("a" * 20_000, "is no token: a token has printable ASCII characters and no spaces"),
        ("", "is empty"),
        (" \n", "is empty"),
        ("Bearer abc", "begins with 'Bearer ': leave that away"),
        (b"abc", "is a bytes: a token is text"),
    ],
)
def test_what_is_no_token_is_refused_without_showing_it(token: Any, why: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Token(token, None, InstantClock())
    assert str(caught.value) == f"the token {why}"


def test_the_end_of_a_line_is_no_part_of_a_token() -> None:
    assert Token("abc\n", None, InstantClock()).headers() == {"authorization": "Bearer abc"}


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    clock, file = InstantClock(), tmp_path / "token"
    file.write_text("one\n")
    token = Token(None, file, clock)
    beside = tmp_path / "new"
    beside.write_text("two\n")
    beside.replace(file)
    assert token.headers() == {"authorization": "Bearer one"}, "it was looked at a moment ago"
    await clock.sleep(LOOK_SECONDS)
    assert token.headers() == {"authorization": "Bearer two"}
    file.unlink()
    await clock.sleep(LOOK_SECONDS)
    assert token.headers() == {"authorization": "Bearer two"}, "it may come back in a moment"


@pytest.mark.parametrize(("text", "why"), [(None, "cannot be read: No such file"), ("a b", "is no token")])
def test_a_file_that_is_of_no_use_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        Token(None, file, InstantClock())
    assert why in str(caught.value) and str(file) in str(caught.value) and "a b" not in str(caught.value)


def test_what_is_given_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, file = InstantClock(), tmp_path / "token"
    file.write_text("file")
    monkeypatch.setenv("BRAIDMQ_TOKEN_FILE", os.fspath(file))
    assert token_of(None, None, {}, clock).headers() == {"authorization": "Bearer file"}
    monkeypatch.setenv("BRAIDMQ_TOKEN", "variable")
    assert token_of(None, None, {}, clock).headers() == {"authorization": "Bearer variable"}
    assert token_of(None, file, {}, clock).headers() == {"authorization": "Bearer file"}
    assert token_of("given", None, {}, clock).headers() == {"authorization": "Bearer given"}
    assert token_of(None, None, {"Authorization": "Basic x"}, clock).headers() == {}
    for token, path, headers in (("given", file, {}), ("given", None, {"authorization": "x"})):
        with pytest.raises(InvalidArgument, match="not both"):
            token_of(token, path, headers, clock)


@pytest.mark.parametrize("renewed", [0, 1, 5])
async def test_a_poll_goes_on_however_often_its_token_is_renewed_while_it_waits(tmp_path: Path, renewed: int) -> None:
    """A poll whose token has ended meanwhile is refused when its wait is over, and the next one likewise."""
    file, sent = tmp_path / "token", list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["authorization"])
        if len(sent) > renewed:
            return httpx.Response(200, json={"topics": [], "next": None})
        file.write_text(f"token-{len(sent)}")
        return httpx.Response(401, json={"type": "urn:braidmq:unauthenticated", "title": "No", "status": 401})

    file.write_text("token-0")
    async with AsyncClient(
        "http://127.0.0.1:8080",
        token_file=file,
        http_transport=httpx.MockTransport(answer),
        clock=InstantClock(),
        direct=False,
    ) as client:
        assert [topic async for topic in client.topics()] == []
    assert sent == [f"Bearer token-{number}" for number in range(renewed + 1)]


async def test_a_token_that_is_refused_and_not_renewed_is_sent_once(tmp_path: Path) -> None:
    file, sent = tmp_path / "token", list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["authorization"])
        return httpx.Response(401, json={"type": "urn:braidmq:unauthenticated", "title": "No", "status": 401})

    file.write_text("token-0")
    for given in ({"token_file": file}, {"token": "token-0"}, {"headers": {"authorization": "Bearer token-0"}}):
        sent.clear()
        async with AsyncClient(
            "http://127.0.0.1:8080",
            http_transport=httpx.MockTransport(answer),
            clock=InstantClock(),
            direct=False,
            **given,
        ) as client:
            with pytest.raises(Unauthenticated):
                await client.topic("t")
        assert sent == ["Bearer token-0"]


async def test_a_poll_that_goes_on_with_a_renewed_token_is_not_waited_for(tmp_path: Path) -> None:
    """Its answer may be held back again: an idle subscription stays silent."""
    file, clock, asked = tmp_path / "token", ManualClock(), list[str]()
    held = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        if len(asked) == 1:
            await clock.sleep(25)
            file.write_text("token-1")
            return httpx.Response(401, json={"type": "urn:braidmq:unauthenticated", "title": "No", "status": 401})
        await held.wait()
        return httpx.Response(200, json={})

    file.write_text("token-0")
    async with AsyncClient(
        "http://127.0.0.1:8080",
        token_file=file,
        http_transport=httpx.MockTransport(answer),
        clock=clock,
        direct=False,
    ) as client:
        poll = asyncio.create_task(client._transport.request(Call("GET", "/v1/topics", wait_seconds=25)))
        for _ in range(2):
            await settle()
            await clock.advance(24)
        await settle()
        assert (len(asked), client.waiting) == (2, None)
        await clock.advance(5)
        assert client.waiting is not None
        held.set()
        await poll
