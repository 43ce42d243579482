"""A request about a consumer group, on its way to the broker that coordinates it, and the answer to the client."""

from dataclasses import dataclass

import orjson

from filer.errors import InvalidInput
from mq.peers.answer_forms import AnswerForm
from mq.peers.transport import PeerAnswer

_STATUS, _MESSAGES = "braid-answer-status", "braid-messages"


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A client's request about a group: an operation with its body, and the media type for claimed messages.

    `principal` is set for requests that may create a group; brokers of earlier versions send "" for no principal.
    """

    topic: str
    group: str
    operation: str
    body: bytes
    accept: str = "application/json"
    principal: str = ""


@dataclass(frozen=True, slots=True)
class GroupReply:
    """The answer to the client, which may be a problem.

    `messages` is the number of claimed messages. Brokers of earlier versions do not send it.
    """

    status: int
    media_type: str
    body: bytes
    messages: int | None = None


def pack_group_call(call: GroupRequest) -> bytes:
    """Pack one line of JSON, then the body as it came."""
    head = {"topic": call.topic, "group": call.group, "operation": call.operation, "accept": call.accept}
    return orjson.dumps(head | ({"principal": call.principal} if call.principal else {})) + b"\n" + call.body


def unpack_group_call(data: bytes) -> GroupRequest:
    """Unpack the call. Raises `InvalidInput` for bytes that `pack_group_call` has not written."""
    head, _, body = data.partition(b"\n")
    try:
        given = orjson.loads(head)
        topic, group, operation, accept = (str(given[name]) for name in ("topic", "group", "operation", "accept"))
        return GroupRequest(topic, group, operation, body, accept, str(given.get("principal", "")))
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInput(f"that is no call about a group: {error}") from error


def _pack(reply: GroupReply) -> PeerAnswer:
    count = {} if reply.messages is None else {_MESSAGES: str(reply.messages)}
    return PeerAnswer(200, {"content-type": reply.media_type, _STATUS: str(reply.status), **count}, reply.body)


def _unpack(answer: PeerAnswer) -> GroupReply:
    count = answer.headers.get(_MESSAGES)
    messages = None if count is None else int(count)
    return GroupReply(int(answer.headers[_STATUS]), answer.headers["content-type"], answer.body, messages)


GROUP_REPLY = AnswerForm(_pack, _unpack)
