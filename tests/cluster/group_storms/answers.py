"""What a worker is given by a claim, as JSON or as Arrow."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"


class Given(NamedTuple):
    """A message, and the claim by which it was given."""

    segment: int
    offset: int
    value: str
    deliveries: int
    claim: str

    @property
    def message(self) -> str:
        """Its id."""
        return f"{self.segment}-{self.offset}"


def json_answer(document: Mapping[str, Any]) -> list[Given]:
    """The messages of an answer as JSON."""
    return [
        Given(each["segment"], each["offset"], each["value"], each["deliveries"], each["claim"])
        for each in document["messages"]
    ]


def arrow_answer(content: bytes) -> list[Given] | str:
    """The messages of an answer as Arrow; or what is wrong, if its claims name other messages than come with it."""
    with pa.ipc.open_stream(content) as stream:
        table = stream.read_all()
    claims = orjson.loads(table.schema.metadata[b"braid-claims"])["claims"]
    named = list(chain.from_iterable(map(_named, claims)))
    columns = (table[name].to_pylist() for name in ("segment", "_offset", "deliveries"))
    came = list(zip(*columns, strict=True))
    if [each[:3] for each in named] != came:
        return f"its claims name {named}, and its messages are {came}"
    values = table["value"].to_pylist()
    return [
        Given(segment, offset, value.decode() if isinstance(value, bytes) else value, deliveries, claim)
        for (segment, offset, deliveries, claim), value in zip(named, values, strict=True)
    ]


def _named(claim: Mapping[str, Any]) -> list[tuple[int, int, int, str]]:
    """The segment, the offset, the deliveries and the claim of each message that a claim names."""
    ranges = claim.get("ranges", [[claim["from"], claim["to"]]])
    return [
        (claim["segment"], offset, claim["deliveries"], claim["claim"])
        for start, stop in ranges
        for offset in range(start, stop)
    ]
