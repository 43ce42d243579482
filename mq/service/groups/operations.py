"""The requests about groups: what each asks, what it answers, and how one broker passes both to another.

A broker passes a request on to the group's coordinator as JSON, under the operation's name. Brokers of earlier versions
know the same names and bodies (docs/design.md §14).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import orjson

from mq.forms.formats import JSON
from mq.forms.group_bodies import (
    ClaimBody,
    HeartbeatBody,
    JoinBody,
    LeaveBody,
    MessagesBody,
    RedriveBody,
    ResetBody,
)
from mq.forms.json_form import JsonBody, checked_body
from mq.forms.shallow_json import object_of
from mq.limits.budget import Budget
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupReply
from mq.service.groups.answers import Claimed, Document, Names
from mq.service.groups.long_bodies import decision_bytes, parsed_in_turns

Q = TypeVar("Q")
A = TypeVar("A")
B = TypeVar("B", bound=JsonBody)
Settings = Mapping[str, Any]
SETTINGS_EXAMPLE = '{"mode": "queue", "lease_seconds": 60}'
_CREATED, _NO_CONTENT = 201, 204


@dataclass(frozen=True, slots=True)
class Asked(Generic[Q]):
    """A request about a group. `accept` is the media type for claimed messages.

    `principal` is set for requests that may create the group; "" if it has no name.
    """

    topic: str
    group: str
    body: Q
    accept: str = JSON
    principal: str = ""


class BodyForm(ABC, Generic[Q]):
    """How brokers pass the body of a request on."""

    @abstractmethod
    def write(self, body: Q) -> bytes:
        """The body as text."""

    @abstractmethod
    async def read(self, text: bytes, lease: ReadLease, room: Budget) -> Q:
        """The body of a text, which may come from any client of an earlier broker.

        Parses long text in the turns of the lease, in that room. Raises `InvalidInput` and `Malformed`.
        """


class _Nothing(BodyForm[None]):
    def write(self, body: None) -> bytes:
        return b""

    async def read(self, text: bytes, lease: ReadLease, room: Budget) -> None:
        return None


class _Settings(BodyForm[Settings]):
    def write(self, body: Settings) -> bytes:
        return orjson.dumps(body)

    async def read(self, text: bytes, lease: ReadLease, room: Budget) -> Settings:
        return object_of(text or b"{}", SETTINGS_EXAMPLE)


class _Checked(BodyForm[B]):
    """A short body."""

    def __init__(self, model: type[B]) -> None:
        self._model = model

    def write(self, body: B) -> bytes:
        # Brokers of earlier versions refuse unknown fields, so only the fields that were given are sent.
        return body.model_dump_json(exclude_unset=True, by_alias=True).encode()

    async def read(self, text: bytes, lease: ReadLease, room: Budget) -> B:
        return checked_body(object_of(text or b"{}", self._model.EXAMPLE), self._model)


class _CheckedInTurns(_Checked[B]):
    """A body that may name many things."""

    async def read(self, text: bytes, lease: ReadLease, room: Budget) -> B:
        async with room.held(decision_bytes(text)):
            return await parsed_in_turns(text, self._model, lease)


class _Text(BodyForm[bytes]):
    """A body that may name many messages. It stays text until the coordinator works on it.

    Parsed it would take forty times as much memory.
    """

    def write(self, body: bytes) -> bytes:
        return body

    async def read(self, text: bytes, lease: ReadLease, room: Budget) -> bytes:
        return text


@dataclass(frozen=True, slots=True)
class ReplyForm(Generic[A]):
    """How brokers pass an answer on."""

    write: Callable[[A], GroupReply]
    read: Callable[[GroupReply], A]


@dataclass(frozen=True, slots=True, eq=False)
class Operation(Generic[Q, A]):
    """A kind of request, under its name between brokers.

    `wait_of` returns for how many seconds a request may wait. `makes_group`: it creates a group that does not exist.
    `turn` is its line on the event loop, unless it waits.
    """

    name: str
    body: BodyForm[Q]
    reply: ReplyForm[A]
    wait_of: Callable[[Q], float] = lambda _: 0.0
    makes_group: bool = False
    turn: Literal["others", "pages"] = "others"

    @property
    def is_bounded(self) -> bool:
        """Whether its body is text, which counts in the memory for decisions while the coordinator works on it."""
        return isinstance(self.body, _Text)


def _document(reply: GroupReply) -> Document:
    return Document([reply.body], reply.status == _CREATED)


def _claimed(reply: GroupReply) -> Claimed:
    return Claimed(reply.media_type, [reply.body], reply.messages)


_NOTHING, _TEXT = _Nothing(), _Text()
_DOCUMENT: ReplyForm[Document] = ReplyForm(
    lambda answer: GroupReply(_CREATED if answer.is_new else 200, JSON, b"".join(answer.parts)), _document
)
_CLAIMED: ReplyForm[Claimed] = ReplyForm(
    lambda answer: GroupReply(200, answer.media_type, b"".join(answer.parts), answer.messages), _claimed
)
_DONE: ReplyForm[None] = ReplyForm(lambda _: GroupReply(_NO_CONTENT, JSON, b""), lambda _: None)
_NAMES: ReplyForm[Names] = ReplyForm(
    lambda names: GroupReply(200, JSON, orjson.dumps({"groups": names})),
    lambda reply: [(name, mode) for name, mode in orjson.loads(reply.body)["groups"]],
)

PUT = Operation("put", _Settings(), _DOCUMENT, makes_group=True)
DESCRIBE = Operation("describe", _NOTHING, _DOCUMENT)
DELETE = Operation("delete", _NOTHING, _DONE)
LIST = Operation("list", _NOTHING, _NAMES, turn="pages")
RESET = Operation("reset", _Checked(ResetBody), _DOCUMENT)
REDRIVE = Operation("redrive", _Checked(RedriveBody), _DOCUMENT)
LOOK = Operation("messages", _Checked(MessagesBody), _DOCUMENT, turn="pages")
CLAIM = Operation("claims", _Checked(ClaimBody), _CLAIMED, wait_of=lambda body: body.wait, makes_group=True)
ACK = Operation("acks", _TEXT, _DOCUMENT)
RELEASE = Operation("releases", _TEXT, _DOCUMENT)
EXTEND = Operation("extensions", _TEXT, _DOCUMENT)
JOIN = Operation("members", _Checked(JoinBody), _DOCUMENT, makes_group=True)
HEARTBEAT = Operation("heartbeats", _CheckedInTurns(HeartbeatBody), _DOCUMENT, wait_of=lambda body: body.wait)
LEAVE = Operation("leave", _Checked(LeaveBody), _DONE)
COMMIT = Operation("commits", _TEXT, _DOCUMENT)

OPERATIONS: Mapping[str, Operation[Any, Any]] = {
    each.name: each
    for each in (
        *(PUT, DESCRIBE, DELETE, LIST, RESET, REDRIVE, LOOK),
        *(CLAIM, ACK, RELEASE, EXTEND),
        *(JOIN, HEARTBEAT, LEAVE, COMMIT),
    )
}
"""All operations, by name."""
