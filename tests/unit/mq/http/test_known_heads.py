"""Heads of publishes that need no parser, since it has understood the same headers before."""

import pytest

from mq.http.fast_path import known_heads
from mq.http.fast_path.head import Head, read_head
from mq.http.fast_path.known_heads import KnownHeads
from tests.support.mutated_publishes.http_bytes import MESSAGES, request

USUAL = ["User-Agent: x", "Accept: */*", "Braid-Header-A: b"]


def parsed(data: bytes) -> Head:
    """As the connection has it from the parser."""
    line, *lines = data[: data.index(b"\r\n\r\n")].split(b"\r\n")
    pairs = [(name.lower(), value.strip(b" \t")) for name, _, value in (each.partition(b":") for each in lines)]
    head = read_head(line.split(b" ")[1], pairs)
    assert head is not None
    return head


def knowing(data: bytes) -> KnownHeads:
    heads = KnownHeads()
    heads.note(data, parsed(data))
    return heads


@pytest.mark.parametrize(
    "target",
    [
        MESSAGES,
        f"{MESSAGES}?",
        f"{MESSAGES}?key=heron",
        f"{MESSAGES}?key=",
        f"{MESSAGES}?key=%C3%BC+a",
        f"{MESSAGES}?key=a&acks=stored",
        f"{MESSAGES}?producer=p&sequence=7",
        "/v1/topics/other/messages?key=k",
    ],
)
def test_the_same_headers_are_known_with_any_target(target: str) -> None:
    whole = request(target, b"other", USUAL)
    found = knowing(request(headers=USUAL)).find(whole)
    assert found is not None
    head, begin = found
    wanted = parsed(whole)
    assert whole[begin:] == b"other" and head.headers_allowed and not wanted.headers_allowed
    assert (head.path, head.topic, head.size_bytes, head.request_id) == (wanted.path, wanted.topic, 5, None)
    for name in ("content_type", "declared_bytes", "encoding", "headers", "id", "parameters"):
        assert getattr(head.request, name) == getattr(wanted.request, name)
    assert [*head.headers] == [*wanted.headers]


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(request(headers=["User-Agent: y"]), id="other headers"),
        pytest.param(request(headers=[*reversed(USUAL)]), id="another order"),
        pytest.param(request(headers=USUAL)[:-1], id="a part"),
        pytest.param(request(headers=USUAL) + b"P", id="more than one"),
        pytest.param(request(headers=USUAL, version="1.0"), id="HTTP/1.0"),
        pytest.param(request(headers=USUAL, method="PUT"), id="another method"),
        pytest.param(b"\r\n" + request(headers=USUAL), id="an empty line before"),
        pytest.param(request(f"{MESSAGES}?nonsense=1", headers=USUAL), id="a parameter that is refused"),
        pytest.param(request(f"{MESSAGES}?key=a#b", headers=USUAL), id="a fragment"),
        pytest.param(request("/v1/topics/%74/messages", headers=USUAL), id="an escaped topic"),
        pytest.param(request(f"{MESSAGES}?key=" + "a" * 1000, headers=USUAL), id="a long query"),
        pytest.param(request(f"{MESSAGES}/", headers=USUAL), id="another path"),
        pytest.param(request(headers=USUAL).replace(b"POST ", b"POST  "), id="another space"),
    ],
)
def test_anything_else_is_not_known(whole: bytes) -> None:
    assert knowing(request(headers=USUAL)).find(whole) is None


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(request(headers=["X-Request-Id: mine"]), id="an id of its own"),
        pytest.param(request(headers=["User-Agent: \xfc"]), id="a byte beyond ASCII"),
        pytest.param(request(headers=["User-Agent: " + "x" * known_heads.MOST_BYTES]), id="long"),
        pytest.param(request() + b"more", id="more than one request"),
    ],
)
def test_such_headers_are_not_remembered(whole: bytes) -> None:
    assert knowing(whole).find(whole) is None


def test_what_the_parser_made_something_else_of_is_not_remembered() -> None:
    whole, heads = request(headers=["Accept: a\r\n b"]), KnownHeads()
    heads.note(whole, parsed(request(headers=["Accept: a b"])))
    assert heads.find(whole) is None


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_heads, "MOST_KNOWN", 3)
    heads, known = KnownHeads(), []
    for number in range(10):
        whole = request(f"/v1/topics/t{number}/messages", headers=[f"User-Agent: {number}"])
        heads.note(whole, parsed(whole))
        known.append(whole)
        assert heads.find(whole) is not None
    assert sum(heads.find(whole) is not None for whole in known) <= 3
    assert len(heads._targets) <= 3
