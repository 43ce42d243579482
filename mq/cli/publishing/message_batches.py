"""Messages as `mq subscribe --json` prints them, to be published again: key, value, headers and event time."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson
import pyarrow as pa

from braidmq import Message, Reference, Topic
from filer.clock import SystemClock
from filer.errors import InvalidInput
from filer.format.schema import MessageSchema
from filer.times import EPOCH
from mq.base import exact_json
from mq.base.errors import Malformed
from mq.bodies.json_body import rows_of
from mq.bodies.rows import JSON_HEADER
from mq.cli.failures import CommandFailed
from mq.cli.publishing.batches import Batch, blocks
from mq.cli.publishing.input_stream import InputStream
from mq.limits.steps import at_once

_OF_THE_LOG = ("id", "topic", "segment", "offset", "timestamp", "deliveries", "claim", "state")
"""The fields of a message that the broker sets: a copy gets its own."""


class Payload(NamedTuple):
    """The message of that row has its value beside the log. It is a message of another topic, or of this one."""

    row: int
    message: Message


def message_batches(stream: InputStream, topic: Topic) -> Iterator[Batch]:
    """Each line is a message for that topic. Raises `CommandFailed`, which names the line that is none."""
    schema, received_us = MessageSchema.of(topic.config["key_type"], topic.config["value_type"]), SystemClock().now_us()
    for first, lines in blocks(stream):
        messages: list[tuple[str, Any]] = []
        payloads: list[Payload] = []
        numbers: list[int] = []
        for number, line in enumerate(lines, first):
            if line and not line.isspace():
                where = f"{stream.name}, line {number}"
                message = _message(line, schema, where)
                if "ref" in message:
                    payloads.append(Payload(len(messages), _referring(message, where)))
                    message = {**{name: each for name, each in message.items() if name != "ref"}, "value": None}
                messages.append((where, {name: each for name, each in message.items() if name not in _OF_THE_LOG}))
                numbers.append(number)
        try:
            rows = at_once(rows_of(messages, schema, received_us)).batch
        except (InvalidInput, Malformed) as error:
            raise CommandFailed(str(error)) from error
        table = pa.Table.from_batches([rows.select(["key", "value", "headers", "event_time"])])
        yield Batch(table, "key", "value", lines=numbers, is_message=True, payloads=payloads)


def _message(line: bytes, schema: MessageSchema, where: str) -> dict[str, Any]:
    try:
        message = exact_json.loads(line)
    except orjson.JSONDecodeError as error:
        raise CommandFailed(f"{where}: {error}") from error
    if not isinstance(message, dict):
        raise CommandFailed(f"{where}: a message is a JSON object, as mq subscribe --json prints it")
    headers, name = message.get("headers"), JSON_HEADER[0]
    is_declared = isinstance(headers, dict) and headers.get(name) == JSON_HEADER[1].decode()
    if is_declared and not schema.is_json and isinstance(message.get("value"), str):
        # Readers see a JSON string if the stored text, which the header declares as JSON, is one.
        text = orjson.dumps(message.pop("value"))
        message["value_base64"] = b64encode(text).decode()
    return message


def _referring(message: dict[str, Any], where: str) -> Message:
    ref = message["ref"]
    try:
        _, _, _, topic, *_ = ref["url"].split("/")
        reference = Reference(ref["uri"], ref["size"], ref["etag"], ref["sha256"])
        segment, offset = int(message["segment"]), int(message["offset"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CommandFailed(f"{where}: its ref is none that mq subscribe --json prints: {error!r}") from error
    # The time is not used: the payload is opened by the message's place.
    return Message(unquote(topic), segment, offset, EPOCH, None, None, ref=reference)
