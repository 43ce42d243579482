"""A problem, as all errors are answered (RFC 9457)."""

from typing import Annotated, Literal

from pydantic import Field

from filer.errors import RemedyKind
from mq.base.problem_kinds import KINDS
from mq.http.openapi.answer import ABSENT, Answer
from mq.http.openapi.messages import StoredRange


class Remedy(Answer):
    """What to do about a problem, for a program that says so in words of its own."""

    kind: RemedyKind
    fault: str
    """The detail, without what to do about it."""
    topic: str = ABSENT
    topic_group: str = ABSENT
    group: str = ABSENT
    message: str = ABSENT


class Problem(Answer):
    """Why the broker refuses a request, or fails, and what would be right."""

    type: Annotated[str, Field(json_schema_extra={"enum": [f"urn:braidmq:{kind}" for kind in KINDS]})]
    """The kind. Kinds stay the same from version to version; later versions may have more."""
    title: str
    status: int
    detail: str
    retryable: bool
    """Whether the same request may help when it is repeated, and cannot store anything twice."""
    request_id: str = ABSENT
    remedy: Remedy = ABSENT
    """There if another request can do something about it."""
    earliest: str = ABSENT
    """Of `position-expired`: the marker to go on from."""
    limit_bytes: int = ABSENT
    """Of `body-too-large`."""
    upload: str = ABSENT
    """Of `body-too-large`: the path where larger payloads go."""
    limit: str = ABSENT
    """Of `quota-exceeded`: which limit."""
    value: int = ABSENT
    """Of `quota-exceeded`: how much the limit allows."""
    used: int = ABSENT
    """Of `quota-exceeded`: how much there is, of connections and of storage."""
    successors: list[int] = ABSENT
    """Of `segment-sealed`: the segments that follow it."""
    positions: list[StoredRange] = ABSENT
    """Of `publish-incomplete`: the messages that are stored."""
    cause: str = ABSENT
    """Of `store-unavailable`: an error of the operating system, an HTTP status, `timeout` or `connection`."""
    key: str = ABSENT
    """Of `data-missing` and `data-damaged`: the object."""
    segment: int = ABSENT
    """Of `data-missing` and `data-damaged`: the segment whose messages cannot be read."""
    offset: int = ABSENT
    """Of `data-missing` and `data-damaged`: the first message that cannot be read."""
    next_offset: int = ABSENT
    """Of `data-missing` and `data-damaged`: where the messages go on."""
    next: str = ABSENT
    """Of `data-missing` and `data-damaged`: the marker behind the messages that cannot be read."""


class ReadinessProblem(Answer):
    """What a broker cannot do at the moment."""

    type: Literal["store-stalled", "zookeeper-lost", "clock-off"]
    detail: str
    operation: str = ABSENT
    """Of `store-stalled`, as all that follow."""
    key: str = ABSENT
    seconds: float = ABSENT
    tries: int = ABSENT
    cause: str | None = ABSENT
