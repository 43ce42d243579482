"""Problems without hidden names: they name no topic that the client may not observe."""

import re
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

import orjson
from starlette.types import Message, Scope, Send

from mq.broker import Broker
from mq.http.problems import MEDIA_TYPE
from mq.http.reply import WHOLE_BODY
from mq.http.routes import ROUTES
from mq.security.principal import Principal

T = TypeVar("T")
HIDDEN = "(hidden)"
HIDDEN_NAMES = "braidmq.hidden_names"
"""The key in the scope of a request whose principal may not observe all topics."""
_NAMED = re.compile(r"(\btopic(?: group)? '|\btopics/|\btopic-groups/)([A-Za-z0-9._-]{1,200})")
"""Problems name a topic like this: behind these words, in an object's key, or in a path."""
_FORBIDDEN = "urn:braidmq:forbidden"
_OWN_FAULT = 500
_WORD = re.compile(r"[A-Za-z0-9._-]+")
_ROUTE_WORDS = frozenset(word for route in ROUTES for word in route.template.split("/"))
_PLAIN = frozenset(("type", "title", "status", "retryable", "request_id"))
"""The fields of a problem that are the same for all clients."""


class HiddenNames:
    """The names that problems of one request must not have: any topic that its principal may not observe.

    In a problem, only a word that the problem calls a topic is looked at. So a text of the request, which may be a
    guess, gets the same answer whether there is such a topic or not: the words of a problem depend on the request, and
    on what its principal may see.

    A failure in the broker or on the store may be described in words of other programs, which have no texts of bodies
    in them. There the topic group of the topics that the request names is hidden in any place, and so are the other
    words in the request's address. Otherwise the answer would show whether a guess was right.
    """

    def __init__(self, broker: Broker, principal: Principal, topics: Iterable[str], scope: Scope) -> None:
        self._broker, self._principal, self._topics = broker, principal, set(topics)
        self._scope = scope

    def add(self, topics: Iterable[str]) -> None:
        """Note that the request names these topics too."""
        self._topics.update(topics)

    def problem(self, document: dict[str, Any]) -> dict[str, Any]:
        """A problem without the names."""
        if document.get("type") == _FORBIDDEN:
            return document  # it names what the request itself has named
        told = {key: value for key, value in document.items() if key not in _PLAIN}
        if document.get("status", 0) >= _OWN_FAULT:
            told = self._without_group(told)
        if (remedy := told.pop("remedy", None)) is not None:
            topics = remedy.keys() & {"topic", "topic_group"}
            told["remedy"] = remedy | {what: HIDDEN for what in topics if not self._sees(remedy[what])}
        return document | _mapped(told, self._unnamed)

    def _unnamed(self, text: str) -> str:
        return _NAMED.sub(lambda found: found[1] + (found[2] if self._sees(found[2]) else HIDDEN), text)

    def _sees(self, name: str) -> bool:
        return self._principal.sees(name) or self._principal.sees(name.rstrip("."))

    def _without_group(self, told: dict[str, Any]) -> dict[str, Any]:
        groups = {self._broker.topics.group_of(topic) for topic in self._topics}
        hidden = {name for name in groups if name is not None and not self._principal.sees(name)}
        hidden |= {name for text in _texts(told) for _, name in _NAMED.findall(text) if not self._sees(name)}
        if not hidden:
            return told
        hidden |= self._given() - self._topics
        return _mapped(told, lambda text: _WORD.sub(lambda found: _shown(found[0], hidden), text))

    def _given(self) -> set[str]:
        """The words of the address that the client has chosen."""
        given = [part for part in self._scope["path"].split("/") if part not in _ROUTE_WORDS]
        given += [value for _, value in parse_qsl(self._scope["query_string"].decode("latin-1"))]
        return {word for text in given for word in _words(text)}

    def body(self, problem: bytes) -> bytes:
        """As `problem`, for a body."""
        return orjson.dumps(self.problem(orjson.loads(problem)))

    def sender(self, send: Send) -> Send:
        """Sends answers of the request without the names. Another broker may have written the answer."""
        begun: Message | None = None

        async def hiding(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start" and _is_problem(message):
                if WHOLE_BODY not in message:
                    begun = message
                    return
                message = {**message, WHOLE_BODY: self.body(message[WHOLE_BODY])}
            elif begun is not None:
                body = self.body(message["body"])
                headers = [each for each in begun["headers"] if each[0] != b"content-length"]
                await send({**begun, "headers": [*headers, (b"content-length", b"%d" % len(body))]})
                begun, message = None, {**message, "body": body}
            await send(message)

        return hiding


def hidden_names(scope: Scope) -> HiddenNames | None:
    """The names that problems of a request must not have; None if all clients may observe everything."""
    found: HiddenNames | None = scope.get(HIDDEN_NAMES)
    return found


def _is_problem(start: Message) -> bool:
    media_types = [value for name, value in start["headers"] if name == b"content-type"]
    return start["status"] >= 400 and media_types == [MEDIA_TYPE.encode()]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _words(text: str) -> Iterator[str]:
    """The names that a text may have: a full stop behind one may belong to the sentence."""
    for word in _WORD.findall(text):
        yield word
        yield word.rstrip(".")


def _mapped(value: T, change: Callable[[str], str]) -> T:
    """The same with each text in it changed."""
    changed: Any = value
    if isinstance(value, str):
        changed = change(value)
    elif isinstance(value, dict):
        changed = {key: _mapped(each, change) for key, each in value.items()}
    elif isinstance(value, list):
        changed = [_mapped(each, change) for each in value]
    return cast(T, changed)


def _shown(word: str, hidden: Set[str]) -> str:
    if word in hidden:
        return HIDDEN
    stem = word.rstrip(".")
    return HIDDEN + word[len(stem) :] if stem in hidden else word
