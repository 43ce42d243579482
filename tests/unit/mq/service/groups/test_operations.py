"""How brokers pass requests about groups and their answers to each other, also to brokers of earlier versions."""

from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest

from filer.errors import InvalidInput
from mq.base.errors import NotFound, PeerProblem
from mq.forms.formats import ARROW, JSON
from mq.forms.group_bodies import ClaimBody, HeartbeatBody, Held, JoinBody, LeaveBody, MessagesBody, ResetBody
from mq.http.problems import problem_of
from mq.limits.budget import Budget
from mq.limits.read_budget import ReadBudget
from mq.limits.turns import Turns
from mq.peers.group_call import GROUP_REPLY, GroupReply
from mq.service.groups.answers import Claimed, Document
from mq.service.groups.operations import (
    ACK,
    CLAIM,
    DELETE,
    DESCRIBE,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    LOOK,
    OPERATIONS,
    PUT,
    RESET,
    Operation,
)


async def read(operation: Operation[Any, Any], text: bytes) -> Any:
    turns = Turns(lambda: 0.0)
    lease = ReadBudget(2**20, turns.pages, lambda _: None).lease()
    return await operation.body.read(text, lease, Budget(2**20))


@pytest.mark.parametrize(
    ("operation", "body", "text"),
    [
        (PUT, {"mode": "queue", "from": "latest"}, {"mode": "queue", "from": "latest"}),
        # An earlier broker refuses a field that it does not know: what was not given is not sent.
        (CLAIM, ClaimBody(max=5, wait=1.5), {"max": 5, "wait": 1.5}),
        (RESET, ResetBody(to="earliest"), {"to": "earliest"}),
        (LOOK, MessagesBody(state="dead", limit=3, max_bytes=9), {"state": "dead", "limit": 3, "max_bytes": 9}),
        (JOIN, JoinBody(member_id="m"), {"member_id": "m"}),
        (LEAVE, LeaveBody(member_id="m", member_epoch=None), {"member_id": "m", "member_epoch": None}),
        (
            HEARTBEAT,
            HeartbeatBody(member_id="m", member_epoch=2, segments=[Held(segment=0, epoch=1)], wait=10),
            {"member_id": "m", "member_epoch": 2, "segments": [{"segment": 0, "epoch": 1}], "wait": 10.0},
        ),
    ],
)
async def test_a_body_comes_out_as_it_went_in(operation: Operation[Any, Any], body: Any, text: dict[str, Any]) -> None:
    written = operation.body.write(body)
    assert orjson.loads(written) == text
    assert await read(operation, written) == body


async def test_a_body_that_names_many_messages_stays_text() -> None:
    assert ACK.body.write(b" {}") == b" {}"
    assert await read(ACK, b" {}") == b" {}"


async def test_an_empty_body_is_an_object_without_fields() -> None:
    assert await read(CLAIM, b"") == ClaimBody()
    assert await read(PUT, b"") == {}
    assert await read(DESCRIBE, b"") is None


async def test_a_body_of_another_broker_is_checked() -> None:
    with pytest.raises(InvalidInput, match="max"):
        await read(CLAIM, b'{"max": 0}')


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (PUT, Document([b'{"a":1}'], is_new=True)),
        (DESCRIBE, Document([b'{"a":1}'])),
        (DELETE, None),
        (LIST, [("billing", "queue"), ("search", "stream")]),
        (CLAIM, Claimed(ARROW, [b"messages"], 3)),
    ],
)
def test_an_answer_comes_out_as_it_went_in(operation: Operation[Any, Any], answer: Any) -> None:
    assert operation.reply.read(GROUP_REPLY.unpack(GROUP_REPLY.pack(operation.reply.write(answer)))) == answer


def test_the_count_of_a_coordinator_is_taken_as_it_is() -> None:
    """Without a look at the page, which may have megabytes."""
    assert CLAIM.reply.read(GroupReply(200, JSON, b"no page", 3)).count() == 3


def test_operations_have_names_of_their_own() -> None:
    assert all(OPERATIONS[name].name == name for name in OPERATIONS)
    assert len(OPERATIONS) == 15


def _json(claims: list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"messages": [{"value": '],"claims":['}], "claims": claims, "lease_seconds": 30.0})


def _arrow(claims: list[dict[str, Any]]) -> bytes:
    schema = pa.schema([pa.field("value", pa.binary())], {b"braid-claims": orjson.dumps({"claims": claims})})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    return bytes(sink.getvalue())


@pytest.mark.parametrize(("media_type", "page"), [(JSON, _json), (ARROW, _arrow)])
@pytest.mark.parametrize(
    ("claims", "count"),
    [
        ([], 0),
        ([{"from": 3, "to": 7}], 4),
        ([{"from": 3, "to": 7}, {"from": 9, "to": 20, "ranges": [[9, 10], [18, 20]]}], 7),
    ],
)
def test_claimed_messages_of_an_earlier_coordinator_are_counted(
    media_type: str, page: Callable[[list[dict[str, Any]]], bytes], claims: list[dict[str, Any]], count: int
) -> None:
    body = page(claims)
    claimed = CLAIM.reply.read(GroupReply(200, media_type, body))
    assert claimed.count() == count


def test_a_problem_of_another_broker_is_passed_on_as_it_is() -> None:
    problem = problem_of(NotFound("group", "topic 't' has no group 'g'"))
    assert problem_of(PeerProblem(orjson.loads(problem.body()))) == problem
