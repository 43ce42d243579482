"""Claimed messages, from the answer of a broker."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import httpx
import orjson
import pyarrow as pa

from braidmq.errors import NotABroker
from braidmq.message import Message, messages_of
from braidmq.transport.problems import address_of

_CLAIMS = b"braid-claims"


class Claim(NamedTuple):
    """A broker's claim for a consumer: the messages `[start, stop)` of a segment, for the `deliveries`th time."""

    token: str
    segment: int
    start: int
    stop: int
    deliveries: int


class ClaimedMessages(NamedTuple):
    """Messages, each with its claim. Their leases run for `lease_seconds` from when they were handed out.

    `order` is the group's; None from a broker before version 0.2, which does not report it.
    """

    lease_seconds: float
    order: str | None
    messages: list[tuple[Message, Claim]]


def claimed_messages(topic: str, response: httpx.Response) -> ClaimedMessages:
    """Return the messages of an answer in Arrow. Raises `NotABroker` if they cannot be decoded."""
    try:
        with pa.ipc.open_stream(response.content) as stream:
            table = stream.read_all()
        about = orjson.loads((table.schema.metadata or {})[_CLAIMS])
        claims = [_claim(each) for each in about["claims"]]
        messages = messages_of(topic, table)
        return ClaimedMessages(float(about["lease_seconds"]), about.get("order"), list(_with_claims(messages, claims)))
    except (pa.ArrowInvalid, OSError, orjson.JSONDecodeError, KeyError, ValueError, StopIteration) as failure:
        raise NotABroker(f"{address_of(response)} answered with broken claims: {failure!r}") from failure


def _claim(told: dict[str, Any]) -> Claim:
    return Claim(told["claim"], told["segment"], told["from"], told["to"], told["deliveries"])


def _with_claims(messages: Sequence[Message], claims: Sequence[Claim]) -> Iterator[tuple[Message, Claim]]:
    """Both are in the order in which they were handed out; each message lies in one claim."""
    following = iter(claims)
    claim: Claim | None = None
    for message in messages:
        while claim is None or not (claim.segment == message.segment and claim.start <= message.offset < claim.stop):
            claim = next(following, None)
            if claim is None:
                raise ValueError(f"message {message.id} has no claim")
        yield message, claim
