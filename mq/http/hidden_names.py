"""Problems in words for whoever has sent the request: they name no topic that one may not observe."""

import re
from collections.abc import Iterable, Iterator, Set
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.types import Message, Scope, Send

from mq.broker import Broker
from mq.http.problems import MEDIA_TYPE
from mq.http.reply import WHOLE_BODY
from mq.security.needs import NEEDS
from mq.security.principal import Principal

HIDDEN = "(hidden)"
HIDDEN_NAMES = "braidmq.hidden_names"
"""The key in the scope of a request whose principal may not observe everything."""
_KEY = re.compile(r"\btopics/([A-Za-z0-9._-]{1,200})/")
_WORD = re.compile(r"[A-Za-z0-9._-]+")
_ROUTE_WORDS = frozenset(word for _, template in NEEDS for word in template.split("/"))
_PLAIN = frozenset(("type", "title", "status", "retryable", "request_id"))
"""What a problem says in the same words to everybody."""


class HiddenNames:
    """What problems of one request must not name.

    That is the topic group of the topics that it names, and whatever topic the key of an object belongs to. Where there
    is such a group, whatever else stands in the request's address is hidden too: else a guess would be known by being
    hidden, or by being shown.
    """

    def __init__(self, broker: Broker, principal: Principal, topics: Iterable[str], scope: Scope) -> None:
        self._broker, self._principal, self._topics = broker, principal, set(topics)
        self._scope = scope

    def add(self, topics: Iterable[str]) -> None:
        """The request names these topics too."""
        self._topics.update(topics)

    def problem(self, document: dict[str, Any]) -> dict[str, Any]:
        """A problem without the names."""
        told = {key: value for key, value in document.items() if key not in _PLAIN}
        groups = {self._broker.topics.group_of(topic) for topic in self._topics}
        hidden = {name for name in groups if name is not None and not self._principal.sees(name)}
        if hidden:
            hidden |= self._given() - self._topics
        hidden |= {name for text in _texts(told) for name in _KEY.findall(text) if not self._principal.sees(name)}
        return document | (_without(hidden, told) if hidden else told)

    def _given(self) -> set[str]:
        """The words of the address that the client has chosen."""
        given = [part for part in self._scope["path"].split("/") if part not in _ROUTE_WORDS]
        given += [value for _, value in parse_qsl(self._scope["query_string"].decode("latin-1"))]
        return {word for text in given for word in _words(text)}

    def body(self, problem: bytes) -> bytes:
        """As `problem`, for a body."""
        return orjson.dumps(self.problem(orjson.loads(problem)))

    def sender(self, send: Send) -> Send:
        """Sends answers of the request, whoever has put them together: another broker may have."""
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
    """What problems of a request must not name; None where everybody may observe everything."""
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
    """The names that a text may mean: a full stop behind one may be the sentence's."""
    for word in _WORD.findall(text):
        yield word
        yield word.rstrip(".")


def _without(hidden: Set[str], value: Any) -> Any:
    """The same with each hidden word replaced; what a name is a part of is another name."""
    if isinstance(value, str):
        return _WORD.sub(lambda found: _shown(found[0], hidden), value)
    if isinstance(value, dict):
        return {key: _without(hidden, each) for key, each in value.items()}
    return [_without(hidden, each) for each in value] if isinstance(value, list) else value


def _shown(word: str, hidden: Set[str]) -> str:
    if word in hidden:
        return HIDDEN
    stem = word.rstrip(".")
    return HIDDEN + word[len(stem) :] if stem in hidden else word
