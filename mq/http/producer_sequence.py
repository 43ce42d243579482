"""`?producer=&sequence=`: the id that makes a publish safe to repeat."""

import re
from collections.abc import Mapping

from filer.errors import InvalidInput
from filer.format.requests import RequestId

PARAMETERS = ("producer", "sequence")
PRODUCER_PATTERN = r"^[A-Za-z0-9._:-]{1,200}$"
MAX_SEQUENCE = 2**62
_PRODUCER = re.compile(PRODUCER_PATTERN.removesuffix("$") + r"\Z")
_SEQUENCE = re.compile(r"[0-9]{1,19}\Z")


def of_owner(request: RequestId | None, owner: str) -> RequestId | None:
    """The id as one of that principal (`Principal.owner`): no other principal has it."""
    return request if request is None or not owner else RequestId(request.producer, request.sequence, owner)


def producer_sequence(parameters: Mapping[str, str]) -> RequestId | None:
    """The id of a publish, without an owner; None if it has none. Raises `InvalidInput` with the rule."""
    producer, sequence = parameters.get("producer"), parameters.get("sequence")
    if producer is None and sequence is None:
        return None
    if producer is None or sequence is None:
        given, missing = PARAMETERS if sequence is None else reversed(PARAMETERS)
        raise InvalidInput(f"{given} without {missing}: send both, or neither")
    if not _PRODUCER.match(producer):
        raise InvalidInput(f"producer is 1 to 200 of the characters A-Z a-z 0-9 . _ : -, not {producer!r:.80}")
    if not _SEQUENCE.match(sequence) or int(sequence) > MAX_SEQUENCE:
        raise InvalidInput(f"sequence is a whole number from 0 to {MAX_SEQUENCE} (2^62), not {sequence!r:.80}")
    return RequestId(producer, int(sequence))
