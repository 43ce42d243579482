"""The attributes of spans, with the names of OpenTelemetry's semantic conventions for messaging if there are any.

https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
"""

from collections.abc import Mapping

from filer.tracing import Fact

SYSTEM = "braidmq"

# The type of an operation by the name of the step. Other steps are no operations on messages.
_TYPES = {
    "publish": "send",
    "forward": "send",
    "append": "send",
    "replicate": "send",
    "hold": "send",
    "receive": "receive",
    "subscribe": "receive",
    "fetch": "receive",
    "tail": "receive",
}
NAMES = {
    "attempts": "braidmq.put.attempts",
    "broker": "braidmq.broker.url",
    "error": "error.type",
    "key": "braidmq.store.key",
    "message_id": "messaging.message.id",
    "messages": "messaging.batch.message_count",
    "offset": "braidmq.offset",
    "request_id": "braidmq.request.id",
    "requests": "braidmq.requests",
    "segment": "messaging.destination.partition.id",
    "size_bytes": "braidmq.size_bytes",
    "source": "braidmq.read.source",
    "spans_left_out": "braidmq.spans_left_out",
    "status": "http.response.status_code",
}
"""The name that each fact has as an attribute."""


def of_step(step: str, topic: str) -> dict[str, Fact]:
    """Return the attributes that every span of this step has."""
    attributes: dict[str, Fact] = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": topic,
        "messaging.operation.name": step,
    }
    if (kind := _TYPES.get(step)) is not None:
        attributes["messaging.operation.type"] = kind
    return attributes


def of_facts(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts as attributes. Raises `KeyError` for a fact without a name."""
    # The conventions have the partition as text.
    return {NAMES[name]: str(fact) if name == "segment" else fact for name, fact in facts.items()}
