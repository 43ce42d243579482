"""Messages in requests and in answers, and the positions of readers."""

from typing import Annotated, Any

from pydantic import AwareDatetime, Field, RootModel

from mq.forms.json_form import JsonBody
from mq.http.openapi.answer import ABSENT, Answer

_Base64 = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]
_Count = Annotated[int, Field(ge=0)]


class BytesHeader(JsonBody):
    """The value of a header that is not UTF-8."""

    EXAMPLE = '{"base64": "/w=="}'

    base64: _Base64


class HeaderValue(RootModel[str | BytesHeader]):
    """The value of a header: text, or bytes that are not UTF-8."""


class UploadReference(JsonBody):
    """A payload that was uploaded. What is given beside its id has to be right."""

    EXAMPLE = '{"upload": "…"}'

    upload: str
    size: int | None = ABSENT
    etag: str | None = ABSENT
    sha256: str | None = ABSENT


class OutgoingMessage(JsonBody):
    """A message to publish. It has exactly one of `value`, `value_base64` and `ref`."""

    EXAMPLE = '{"key": "ann", "value": 1}'

    key: str | None = ABSENT
    key_base64: _Base64 = ABSENT
    value: Annotated[
        Any, Field(description="Any JSON. Strings are stored as UTF-8, in a topic of JSON and else as JSON text.")
    ] = ABSENT
    value_base64: _Base64 = ABSENT
    ref: UploadReference = ABSENT
    headers: dict[str, HeaderValue] | None = ABSENT
    event_time: AwareDatetime | None = ABSENT
    delay_seconds: Annotated[
        float, Field(ge=0, description="Queue groups do not hand the message out before. Not with `deliver_at`.")
    ] = ABSENT
    deliver_at: Annotated[AwareDatetime, Field(description="The same, as a time.")] = ABSENT
    expires_at: Annotated[AwareDatetime, Field(description="Queue groups do not hand it out after.")] = ABSENT


class PublishBody(JsonBody):
    """Messages to publish."""

    EXAMPLE = '{"messages": [{"key": "ann", "value": 1}]}'

    messages: list[OutgoingMessage]


class StoredRange(Answer):
    """Messages that were stored one behind the other in a segment."""

    segment: _Count
    offset: _Count
    count: _Count


class Published(Answer):
    """Where the messages of a publish are."""

    positions: list[StoredRange]


class PayloadReference(Answer):
    """A payload that a message stands for."""

    uri: str
    size: int
    etag: str
    sha256: str | None
    url: str
    """Where the broker gives the payload."""


class Message(Answer):
    """A message. It has one of `value`, `value_base64` and `ref`, and one of `key` and `key_base64`."""

    id: str
    """`<segment>-<offset>`."""
    topic: str = ABSENT
    """There if a topic group is read by its own name."""
    segment: int
    offset: int
    timestamp: AwareDatetime
    """When the broker accepted it."""
    event_time: AwareDatetime | None
    """The producer's own time."""
    key: str | None = ABSENT
    key_base64: _Base64 = ABSENT
    """A key that is not UTF-8."""
    value: Any = ABSENT
    """Text, or JSON."""
    value_base64: _Base64 = ABSENT
    """A value that is not UTF-8."""
    ref: PayloadReference = ABSENT
    headers: dict[str, HeaderValue]


class MessagePage(Answer):
    """Messages of a topic."""

    messages: list[Message]
    marker: str
    """Where the next page begins."""


class SegmentPage(Answer):
    """Messages of one segment."""

    messages: list[Message]
    next_offset: int
    end_offset: int | None
    """Null until the segment is sealed."""
    sealed: bool


class SegmentOffset(Answer):
    """A place in a segment."""

    segment: int
    offset: int


class Positions(Answer):
    """Where a topic stands."""

    topic: str
    marker: str
    """It names all of the positions."""
    positions: list[SegmentOffset]


class Ticket(Answer):
    """It opens one stream or socket."""

    ticket: str
    expires_at: AwareDatetime


class Upload(Answer):
    """Where a payload goes."""

    upload: str
    """The id, for the reference in a message."""
    url: str
    method: str
    headers: dict[str, str]
    """To be sent with the payload."""
    expires: AwareDatetime
    value_type: str


class StoredPayload(Answer):
    """A payload that was stored."""

    upload: str
    size: int
    etag: str
    sha256: str
