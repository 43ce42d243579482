"""The formats of message bodies, each described once: for publishing, reading, subscribing and OpenAPI.

To add a format: write its functions (a decoder like those of `mq/bodies`, a page like those of `render`, a stream form
like those of `stream_forms`; each of the three is optional) and add a `Format` to `FORMATS`. No other code has to know.
For clients that accept any format, the first one with the function is the default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from filer.format.schema import MessageSchema
from filer.topic.topic_state import TopicState
from mq.bodies.arrow_body import decode_arrow
from mq.bodies.json_body import decode_json, decode_ndjson
from mq.bodies.rows import Rows
from mq.forms.arrow_stream import arrow_page
from mq.forms.render import Part, json_page, ndjson_page
from mq.forms.stream_forms import NdjsonForm, SseForm, StreamForm
from mq.limits.steps import Steps
from mq.topic.run import Run

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Format:
    """A media type and its functions.

    `is_json`: every message takes objects in memory, so bodies and pages have lower bounds. `decode` makes rows of a
    published body, the topic's schema, and the time of receipt. A body above `inline_decode_bytes` is decoded a step at
    a time: at once it would block the event loop for longer than steps cost. If the decoding runs outside the
    interpreter, the first step runs in a thread. `page` renders runs of messages; with `page_tells_about` its body also
    says where the next page begins, else headers do. `stream` writes a subscription.
    """

    media_type: str
    aliases: Sequence[str] = ()
    is_json: bool = False
    decode: Callable[[bytes, MessageSchema, int], Steps[Rows]] | None = None
    inline_decode_bytes: int = 0
    page: Callable[[TopicState, Sequence[Run], dict[str, Any]], Steps[Sequence[Part]]] | None = None
    page_tells_about: bool = False
    stream: StreamForm | None = None


FORMATS: Sequence[Format] = (
    Format(
        JSON,
        aliases=("text/json", "text/x-json", "application/x-json"),
        is_json=True,
        decode=decode_json,
        inline_decode_bytes=32_768,
        page=json_page,
        page_tells_about=True,
    ),
    Format(SSE, is_json=True, stream=SseForm()),
    Format(
        NDJSON,
        aliases=("application/ndjson", "application/jsonl", "application/jsonlines", "application/x-jsonlines"),
        is_json=True,
        decode=decode_ndjson,
        inline_decode_bytes=32_768,
        page=ndjson_page,
        stream=NdjsonForm(),
    ),
    Format(ARROW, decode=decode_arrow, inline_decode_bytes=4 * 1024 * 1024, page=arrow_page),
)
PUBLISH_FORMATS: Mapping[bytes, Format] = {
    name.encode(): each for each in FORMATS if each.decode for name in (each.media_type, *each.aliases)
}
"""By content type. A body of any other type is one value."""
PAGE_FORMATS: Sequence[Format] = [each for each in FORMATS if each.page]
STREAM_FORMATS: Sequence[Format] = [each for each in FORMATS if each.stream]
