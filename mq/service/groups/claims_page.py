"""Claimed messages for consumers: as JSON with a claim in each, or as Arrow with the claims beside them."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from filer.topic.topic_schema import schema_of
from filer.topic.topic_state import TopicState
from groups.claim_tokens import ClaimTokens
from groups.queue.claims import Grant
from mq.forms.arrow_stream import SEGMENT, arrow_stream, segment_column
from mq.forms.formats import ARROW
from mq.forms.large_values import Aside
from mq.forms.render import MessageRenderer, Part, Written
from mq.limits.steps import Steps
from mq.service.groups.granted_messages import Granted, Piece
from mq.topic.run import Run

CLAIMS = b"braid-claims"
"""The key in the metadata of an Arrow schema: the claims as JSON, as in the JSON answer."""
_MESSAGE_BYTES = 128
_claim = attrgetter("claim")


def claims_in(media_type: str, page: Part) -> dict[str, Any]:
    """The claims of a page, and the other fields beside its messages."""
    if media_type == ARROW:
        with pa.ipc.open_stream(pa.py_buffer(page)) as stream:
            found: dict[str, Any] = orjson.loads(stream.schema.metadata[CLAIMS])
    else:
        found = orjson.loads(page)
        del found["messages"]
    return found


def count_of(media_type: str, page: Part) -> int:
    """The number of messages in a page of another broker."""
    claims = claims_in(media_type, page)["claims"]
    return sum(stop - start for each in claims for start, stop in each.get("ranges", [(each["from"], each["to"])]))


class Described(NamedTuple):
    """Messages, and for each of them the additional fields that the answer shows."""

    told: Sequence[dict[str, Any]]
    run: Run


def claims_of(grants: Sequence[Grant], tokens: ClaimTokens) -> list[dict[str, Any]]:
    """Each claim as clients get it. The grants of one claim come one behind the other."""
    told: list[dict[str, Any]] = []
    for claim, of_claim in groupby(grants, _claim):
        ranges = [(grant.start, grant.stop) for grant in of_claim]
        start, stop = ranges[0][0], ranges[-1][1]
        is_whole = len(ranges) == 1 and start == claim.first
        token = tokens.token(claim, stop) if is_whole else tokens.scattered_token(claim, ranges)
        each = {"claim": token, "segment": claim.segment, "from": start, "to": stop, "deliveries": claim.delivery}
        told.append(each if is_whole else each | {"ranges": ranges})
    return told


def json_claims(
    state: TopicState, granted: Granted, tokens: ClaimTokens, about: dict[str, Any]
) -> Steps[Sequence[Part]]:
    """One JSON object: the messages, each with its claim and the number of its deliveries, and all claims."""
    claims = claims_of(granted.grants, tokens)
    told = [{"deliveries": claim["deliveries"], "claim": claim["claim"]} for claim in claims]
    described = [
        Described([told[piece.number] for piece in pieces for _ in range(piece.rows)], run)
        for pieces, run in granted.pages
    ]
    return described_page(state, described, {"claims": claims, **about})


def described_page(state: TopicState, described: Iterable[Described], about: dict[str, Any]) -> Steps[Sequence[Part]]:
    """One JSON object: the messages in the given order, each with its additional fields, and the fields of `about`."""
    large, written = Aside(), Written()
    renderer = MessageRenderer(state.topic, schema_of(state), large)
    written.add([b'{"messages":['])
    separator = b""
    for told, run in described:
        telling = iter(told)
        for message in renderer.in_steps(run):
            if message is None:
                yield
                continue
            piece = large.fill(orjson.dumps(message | next(telling)))
            written.add([separator, *piece])
            separator = b","
            if written.step_is_over(sum(map(len, piece)) + _MESSAGE_BYTES):
                yield
    written.add([b"]", *(b",%b:%b" % (orjson.dumps(name), orjson.dumps(value)) for name, value in about.items()), b"}"])
    return written.all_parts()


def arrow_claims(
    state: TopicState, granted: Granted, tokens: ClaimTokens, about: dict[str, Any]
) -> Steps[Sequence[Part]]:
    """An Arrow IPC stream of messages with `segment` and `deliveries` in front. Its metadata has the claims."""
    schema = pa.schema(
        [
            SEGMENT,
            pa.field("deliveries", pa.int32(), nullable=False),
            *schema_of(state).log,
        ],
        {CLAIMS: orjson.dumps({"claims": claims_of(granted.grants, tokens), **about})},
    )
    return arrow_stream(
        schema, [(run, [segment_column(run), _deliveries(granted, pieces)]) for pieces, run in granted.pages]
    )


def _deliveries(granted: Granted, pieces: Sequence[Piece]) -> pa.Array:
    """How often each message of these pieces was delivered."""
    told = np.array([granted.grants[piece.number].delivery for piece in pieces], dtype=np.int32)
    return pa.array(np.repeat(told, [piece.rows for piece in pieces]))
