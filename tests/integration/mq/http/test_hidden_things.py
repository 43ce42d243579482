"""Nobody learns of what its token does not let it see: two worlds that differ in that alone answer alike."""

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mq.http.routes import ROUTES as TABLE
from mq.http.routes import SUBSCRIBE
from tests.support.broker.two_worlds import GUESSES, Answer, World, two_worlds
from tests.support.thoroughness import few_or_many, seeds

TOPICS = ("orders-1", "orders-m", "orders-m", "orders-all", "orders-a")
REQUESTS = few_or_many(100, 4000)
TEXTS = (
    "{}",
    "x {}",
    "topic group '{}'",
    "topic '{}' is",
    "topics/{}/topic.json",
    "{}.",
    "x" * 75 + " {}",
    "x" * 50 + " topic group '{}' ",
)
"""What may stand around a name, also where an error shows only the begin of a text."""
QUERIES = ("from", "marker", "after", "limit", "state", "to", "segment", "key", "internal", "max")


FILE = {"segment": 0, "base_offset": 0, "size": 9}
MEMBER = {"member_id": "me", "member_epoch": 1}
OF_ANY = [None, {}, {"?": "?"}, ["?"], "?"]
BODIES: dict[str, list[Any]] = {
    "{topic}": [
        {"segments": 2},
        {"key_type": "?"},
        {"?": 1},
        {"retention": "?"},
        {"topics": ["?"]},
        {"topics": ["orders-1", "?"]},
        {"topics": ["orders-m"]},
        {"topics": ["orders-new", "orders-m"]},
        {"topics": ["orders-new"], "segments": "?"},
    ],
    "{group}": [
        {"mode": "?"},
        {"mode": "queue", "from": "?"},
        {"mode": "stream"},
        {"dead_letter": {"topic": "?"}},
        {"dead_letter": {"topic": "orders-1"}},
        {"dead_letter": {"topic": "orders-m"}},
        {"dead_letter": None},
        {"dead_letter": "?"},
        {"?": 1},
    ],
    "reset": [{"to": "?"}, {"marker": "?"}, {"to": "earliest", "force": True}, {"to": "earliest"}],
    "redrive": [{"ids": ["?"]}, {"ids": ["0-0"]}, {"max": 1}, {"discard": True}],
    "claims": [{"max": 1, "consumer": "?"}, {"max": "?"}, {"max": 1}],
    "acks": [{"messages": [{"claim": "?"}]}, {"messages": [{"claim": "?", "id": "?"}]}],
    "messages": [
        {"messages": [{"key": "?", "value": "?"}]},
        {"messages": [{"ref": {"upload": "?"}}]},
        {"messages": [{"value": 1, "?": 2}]},
        {"messages": [{"value": 1, "topic": "?"}]},
        {"messages": [{"value": 1, "headers": [["?", "?"]]}]},
        {"?": []},
    ],
    "uploads": [{"size": 3}, {"size": 3, "sha256": "?"}, {"size": "?"}, {"size": 10**15}],
    "loads": [{"segments": 1, "load": "?"}, {"segments": 1, "load": "loaded"}, {"segments": "?"}, {"segments": 1}],
    "urls": [{"files": [FILE]}, {"files": [{"segment": "?"}], "look": True}],
    "{load}": [{"files": [{**FILE, "count": 1}]}, {"files": "?"}],
    "members": [{"member_id": "?"}, MEMBER, {**MEMBER, "segments": []}],
    "heartbeats": [{**MEMBER, "segments": []}, {"member_epoch": "?"}],
    "commits": [{**MEMBER, "positions": {"0": 0}}, {**MEMBER, "commits": [{"segment": 0, "position": 0}]}],
    "split": [{"at": "?"}, {"at": 100}],
    "merge": [{"with": "?"}, {"with": 1}],
}
BODIES["releases"] = BODIES["extensions"] = BODIES["acks"]
"""What a request of that route may have in its body; ? stands for a text."""


def with_text(body: Any, text: str) -> Any:
    """The body with that text in the place of each ?."""
    if isinstance(body, dict):
        return {with_text(name, text): with_text(each, text) for name, each in body.items()}
    if isinstance(body, list):
        return [with_text(each, text) for each in body]
    return text if body == "?" else body


def request_of(draw: random.Random, method: str, template: str) -> tuple[str, str, dict[str, Any]]:
    """A request of that route: names that are there, and guesses, wherever something may be named."""
    guess = draw.choice(GUESSES)
    text = draw.choice(TEXTS).replace("{}", draw.choice(GUESSES))
    names = {
        "topic": draw.choice((*TOPICS, *TOPICS, *TOPICS, "orders-new", guess, "__groups", "__audit")),
        "group": draw.choice(("seen-1", "seen-1", "seen-2", "seen-new", "hid-1", guess)),
        "segment": draw.choice(("0", "0", "1", "7", guess)),
        "message": draw.choice(("0-0", "0-3", "1-1", "9-9", guess)),
        "base_offset": "0",
        "load": draw.choice(("loaded", guess)),
        "member": draw.choice(("me", guess)),
    }
    path = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], guess), template)
    given: dict[str, Any] = {}
    if draw.random() < 0.3:
        given["params"] = {draw.choice(QUERIES): draw.choice((text, guess, "earliest", "1", "true"))}
    if method != "GET":
        of_route = BODIES.get(template.rpartition("/")[2], [])
        given["json"] = with_text(draw.choice((*of_route, *of_route, *OF_ANY)), text)
    if draw.random() < 0.2:
        kinds = ("application/vnd.apache.arrow.stream", "application/x-ndjson", text.strip())
        given["headers"] = {"accept": draw.choice(kinds)}
    return method, path, given


def plain(routes: list[tuple[str, str]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each route for what is there: a topic by itself, and a member of a group that is hidden."""
    names = {"group": "seen-1", "segment": "0", "message": "0-0", "base_offset": "0", "load": "loaded", "member": "me"}
    for (method, template), topic in itertools.product(routes, ("orders-1", "orders-m")):
        path = re.sub(r"\{(\w+)\}", lambda found, at=topic: {"topic": at, **names}.get(found[1], "hush"), template)
        of_route = BODIES.get(template.rpartition("/")[2], [{}]) if method != "GET" else [None]
        for body in of_route:
            yield method, path, {} if body is None else {"json": with_text(body, "hush")}


async def asked(worlds: tuple[World, World], method: str, path: str, given: dict[str, Any]) -> Answer:
    """The answer of both, which is one."""
    one, other = [await world.ask(method, path, **given) for world in worlds]
    assert one == other, f"{method} {path} {given} tells the worlds apart:\n{one}\n{other}"
    assert one.status < 500, f"{method} {path} {given}: {one}"
    return one


ROUTES = [(route.method, route.template) for route in TABLE if route is not SUBSCRIBE]
"""The table that another test compares with the application's own. Subscriptions have no end to wait for."""
LAST = [route for route in ROUTES if route[0] == "DELETE"]
FRAMES: list[dict[str, Any]] = [
    {"publish": {"key": "?", "value": "?"}},
    {"publish": [{"ref": {"upload": "?"}}]},
    {"publish": [{"value": 1, "topic": "?"}]},
    {"subscribe": {"from": "?"}},
    {"subscribe": {"marker": "?"}},
    {"subscribe": {"mode": "queue", "group": "?"}},
    {"subscribe": {"mode": "stream", "group": "seen-1"}},
    {"subscribe": {"mode": "?"}},
    {"ack": {"group": "?", "messages": [{"claim": "?"}]}},
    {"ack": {"group": "seen-1", "messages": [{"claim": "?"}]}},
    {"release": {"group": "hid-1", "messages": [{"claim": "?"}]}},
    {"unsubscribe": "?"},
    {"?": "?"},
]


async def try_sockets_and_streams(worlds: tuple[World, World], draw: random.Random) -> None:
    """What goes over a socket, and how a subscription begins."""
    text = draw.choice(TEXTS).replace("{}", draw.choice(GUESSES))
    for topic in ("orders-1", "orders-m"):
        one, other = [await world.frames(topic, with_text(FRAMES, text)) for world in worlds]
        assert len(one) == len(FRAMES) and one == other, f"a socket of {topic} tells the worlds apart for {text!r}"
    for topic, query in itertools.product(("orders-1", "orders-m", *GUESSES), ("earliest", "hush", "push")):
        begun = [await world.begun(f"/v1/topics/{topic}/subscribe?from={query}") for world in worlds]
        assert begun[0] == begun[1], f"a subscription to {topic} from {query} tells the worlds apart"


@pytest.mark.parametrize("seed", seeds(20, range(1)))
@pytest.mark.parametrize(
    ("presigns", "grants", "groups"),
    [
        (True, ["topic:orders-*:read"], ()),
        (True, ["topic:orders-*:*"], ()),
        (False, ["topic:orders-*/seen-*:consume,manage"], ("hid-1",)),
    ],
    ids=["reads", "does everything", "consumes"],
)
async def test_what_is_hidden_changes_no_answer(
    tmp_path: Path, presigns: bool, grants: list[str], groups: tuple[str, ...], seed: int
) -> None:
    """Not by its words, its headers or its status: whatever the path, the query and the body name."""
    draw = random.Random(seed)
    statuses = set[int]()
    async with two_worlds(tmp_path, grants, presigns=presigns, groups=groups) as worlds:
        routes = [route for route in ROUTES if route not in LAST]
        drawn = (request_of(draw, *draw.choice(routes)) for _ in range(REQUESTS))
        for method, path, given in itertools.chain(plain(routes), drawn):
            statuses.add((await asked(worlds, method, path, given)).status)
        await try_sockets_and_streams(worlds, draw)
        for route in LAST:
            await asked(worlds, *request_of(draw, *route))
    assert statuses >= {200, 403, 404, 409, 422}, "what is asked for is neither all refused nor all done"
