"""The bodies of requests about consumer groups."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from filer.errors import InvalidInput
from filer.topic.positions import MARKER_MAX_CHARS
from groups.claim_tokens import MOST_SCATTERED_CHARS, ClaimedRange, ClaimTokens
from groups.offset_set import OffsetSet
from groups.settings import MOST_LEASE_SECONDS
from mq.forms.json_form import JsonBody
from mq.groups.group_view import MOST_SHOWN
from mq.groups.redriver import MOST_LETTERS
from mq.groups.to_decide import ToDecide
from mq.limits.steps import STEP_ROWS, Steps

MOST_CLAIMED, MOST_DECIDED = 10_000, 10_000
MOST_CONSUMER_CHARS = 100
MOST_BYTES = 64 * 1024 * 1024
BODY_BYTES = 4 * 1024 * 1024
_Seconds = Annotated[float, Field(ge=0, le=86_400 * 366, allow_inf_nan=False)]
_Lease = Annotated[float, Field(ge=1, allow_inf_nan=False, json_schema_extra={"maximum": MOST_LEASE_SECONDS})]
"""Groups have a bound of their own below this one. So a request for too much is refused by that one alone."""
_Offset = Annotated[int, Field(ge=0, le=2**62)]
_Epoch = Annotated[int, Field(ge=1, le=2**62)]
_Process = Annotated[str, Field(max_length=200)]
"""A process's own id: it shows when another process has the same member name."""
_MemberId = Annotated[str, Field(max_length=200)]


class ClaimBody(JsonBody):
    """A claim: how many messages at the most, and how long to wait for a first one. `consumer` names the client.

    `scattered`: as Arrow, a claim may have many `ranges`, where messages of others lie between them.
    """

    EXAMPLE: ClassVar[str] = '{"max": 100, "wait": 20}'

    max: Annotated[int, Field(ge=1, le=MOST_CLAIMED)] = 100
    max_bytes: Annotated[int, Field(ge=1, le=MOST_BYTES)] = 8 * 1024 * 1024
    wait: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 0.0
    lease_seconds: _Lease | None = None
    scattered: bool = False
    consumer: Annotated[str, Field(max_length=MOST_CONSUMER_CHARS)] = ""


class ResetBody(JsonBody):
    """Where a group begins anew: `to` earliest, latest or a time, or at a `marker`. `force`: also while it is used."""

    EXAMPLE: ClassVar[str] = '{"to": "earliest"}'

    to: Annotated[str, Field(max_length=100)] | None = None
    marker: Annotated[str, Field(max_length=MARKER_MAX_CHARS)] | None = None
    force: bool = False


_MESSAGE_ID = r"^\d{1,18}-\d{1,18}$"


def _message_id(given: str) -> str:
    if re.match(_MESSAGE_ID, given, re.ASCII) is None:
        raise ValueError(f"it must be the id of a message, such as 0-17, not {given!r:.60}")
    return given


MessageId = Annotated[str, AfterValidator(_message_id), Field(json_schema_extra={"pattern": _MESSAGE_ID})]
"""The id of a message."""


class RedriveBody(JsonBody):
    """Dead letters to publish again, or with `discard` to show no more: the oldest `max`, or those of these `ids`."""

    EXAMPLE: ClassVar[str] = '{"max": 100}'

    max: Annotated[int, Field(ge=1, le=MOST_LETTERS)] | None = None
    ids: Annotated[list[MessageId], Field(min_length=1, max_length=MOST_LETTERS)] | None = None
    discard: bool = False


class MessagesBody(JsonBody):
    """Which messages of a group to show."""

    EXAMPLE: ClassVar[str] = '{"state": "backlog"}'

    state: Literal["backlog", "in_flight", "dead"]
    after: MessageId | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_SHOWN)]
    max_bytes: Annotated[int, Field(ge=1, le=MOST_BYTES)]


class ClaimPart(BaseModel):
    """Messages of a claim: all of them, one by its id, or the offsets from `from` up to `to`, which is not one.

    Without `from` they begin with the claim's first message, without `to` they end with its last.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    claim: Annotated[str, Field(max_length=MOST_SCATTERED_CHARS)]
    id: Annotated[str, Field(max_length=50)] | None = None
    from_: Annotated[_Offset | None, Field(alias="from")] = None
    to: _Offset | None = None


class AckBody(JsonBody):
    """Messages to ack."""

    EXAMPLE: ClassVar[str] = '{"messages": [{"claim": "…", "id": "0-17"}]}'

    messages: Annotated[list[ClaimPart], Field(min_length=1, max_length=MOST_DECIDED)]


class ReleaseBody(AckBody):
    """Messages to give back: after a delay (else the group's back-off), or as dead letters.

    No consumer has begun to work on `untouched` ones: they are not given up, however often they were delivered.
    """

    EXAMPLE: ClassVar[str] = '{"messages": [{"claim": "…", "id": "0-17"}], "reason": "no such customer"}'

    delay_seconds: _Seconds | None = None
    dead: bool = False
    untouched: bool = False
    reason: Annotated[str, Field(max_length=500)] = "released"


class ExtensionBody(AckBody):
    """Messages whose leases run for `lease_seconds` from now on, or for the group's own."""

    EXAMPLE: ClassVar[str] = '{"messages": [{"claim": "…"}], "lease_seconds": 60}'

    lease_seconds: _Lease | None = None


class Held(BaseModel):
    """A segment that a member has, or had, under an epoch."""

    model_config = ConfigDict(extra="forbid", strict=True)

    segment: _Offset
    epoch: _Epoch


class Position(Held):
    """The member is done with everything below `position`."""

    position: _Offset


class JoinBody(JsonBody):
    """A member starts, or starts again; one without a name is given one."""

    EXAMPLE: ClassVar[str] = '{"member_id": "worker-1"}'

    member_id: str | None = None
    process: _Process = ""


class LeaveBody(JsonBody):
    """A member leaves; without the epoch, whichever start of it there is."""

    EXAMPLE: ClassVar[str] = '{"member_id": "worker-1"}'

    member_id: _MemberId
    member_epoch: _Epoch | None = None


class BeatBody(JsonBody):
    """What a member has let go, and what it holds. It waits for something else than that."""

    EXAMPLE: ClassVar[str] = '{"member_epoch": 1, "segments": [{"segment": 0, "epoch": 1}], "released": [], "wait": 10}'

    member_epoch: _Epoch
    segments: Annotated[list[Held], Field(max_length=MOST_DECIDED)] = Field(default_factory=list)
    released: Annotated[list[Held], Field(max_length=MOST_DECIDED)] = Field(default_factory=list)
    wait: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 0.0
    process: _Process = ""


class HeartbeatBody(BeatBody):
    """The same, with the member, which the path of a request names."""

    member_id: _MemberId


class LetGoBody(JsonBody):
    """Segments that the member of a socket has let go."""

    EXAMPLE: ClassVar[str] = '{"let_go": [{"segment": 0, "epoch": 1}]}'

    let_go: Annotated[list[Held], Field(max_length=MOST_DECIDED)]


class CommitBody(JsonBody):
    """How far a member has come in its segments."""

    EXAMPLE: ClassVar[str] = '{"member_id": "worker-1", "positions": [{"segment": 0, "epoch": 1, "position": 17}]}'

    member_id: _MemberId
    positions: Annotated[list[Position], Field(min_length=1, max_length=MOST_DECIDED)]


def to_decide(parts: Sequence[ClaimPart], tokens: ClaimTokens) -> Steps[list[ToDecide]]:
    """The messages that the parts name. Raises `InvalidInput` that names the part and the right form.

    Several deliveries may name one message, if a consumer has got it twice: each has an outcome of its own. Parts that
    name the same delivery of a message are refused, and so are too many ranges of messages.
    """
    # Most parts name messages of the same few claims.
    read = cache(tokens.read)
    decided: list[ToDecide] = []
    ordered: list[tuple[int, int, int, int, int]] = []
    count = 0
    for index, part in enumerate(parts):
        decided.append(each := _part(index, part, read))
        ranges = each.all_ranges
        if each.claim:
            ordered += [(each.claim.segment, each.claim.delivery, start, stop, index) for start, stop in ranges]
        if (count := count + len(ranges)) > MOST_DECIDED:
            raise InvalidInput(
                f"messages.{index}: with it there are more than {MOST_DECIDED} ranges: send several requests"
            )
        if count % STEP_ROWS < len(ranges):
            yield
    ordered.sort()
    if count >= STEP_ROWS:
        yield
    for before, after in pairwise(ordered):
        if before[:2] == after[:2] and after[2] < before[3]:
            raise InvalidInput(
                f"messages.{after[4]}: it names messages that messages.{before[4]} names too, of the same claim"
            )
    return decided


def _part(index: int, part: ClaimPart, read: Callable[[str], ClaimedRange]) -> ToDecide:
    try:
        claim, end, is_over, ranges = read(part.claim)
    except InvalidInput as error:
        raise InvalidInput(f"messages.{index}: {error}") from error
    start, stop = claim.first, end
    if part.id is not None:
        if part.from_ is not None or part.to is not None:
            raise InvalidInput(f"messages.{index}: give id, or from and to, or neither for all messages of the claim")
        segment, _, offset = part.id.partition("-")
        if not (segment.isdecimal() and offset.isdecimal() and int(segment) == claim.segment):
            raise InvalidInput(f"messages.{index}: {part.id!r} is no message of its claim; give the id as it came")
        start, stop = int(offset), int(offset) + 1
    elif part.from_ is not None or part.to is not None:
        start, stop = part.from_ if part.from_ is not None else start, part.to if part.to is not None else stop
    if not claim.first <= start < stop <= end:
        raise InvalidInput(
            f"messages.{index}: [{start}, {stop}) is not within its claim, which is [{claim.first}, {end}) "
            f"of segment {claim.segment}"
        )
    if ranges is not None and (part.id is not None or part.from_ is not None or part.to is not None):
        ranges = tuple(OffsetSet(ranges).within(start, stop))
        if not ranges:
            raise InvalidInput(f"messages.{index}: its claim has no message in [{start}, {stop})")
    return ToDecide(None if is_over else claim, start, stop, ranges)
