"""Requests that may be repeated: their ids, the positions of their messages, and their form in a file's footer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from filer.slots import keyless_slot

EXAMPLE = '{"producer": [sequence, index of the first message in the file, count, ...]}'


class RequestId(NamedTuple):
    """One request of one producer; `sequence` is the producer's own number, which only grows.

    `owner` is the owner of the request: a digest of the principal. It is empty for clients that brokers trust without a
    credential, and for requests that come through a broker of an older version.
    """

    producer: str
    sequence: int
    owner: str = ""

    @property
    def null_slot(self) -> int:
        """The slot of its messages without a key."""
        return keyless_slot(self.producer, self.sequence)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The offset of a request's first message in one segment, and the number of its messages there."""

    segment: int
    offset: int
    count: int


class StoredRequest(NamedTuple):
    """A request's share of one segment, and its position."""

    request: RequestId
    position: Position


def requests_to_json(requests: Sequence[StoredRequest], base: int) -> str:
    """The requests in a file that starts at offset `base`, as its footer has them."""
    by_producer: dict[str, list[int]] = {}
    for request, position in requests:
        by_producer.setdefault(request.producer, []).extend((request.sequence, position.offset - base, position.count))
    return orjson.dumps(by_producer).decode()


def owners_to_json(requests: Sequence[StoredRequest]) -> str:
    """The owners of the producers of these requests, as a footer has them; empty if none has an owner.

    Brokers of earlier versions neither write nor read this. A producer has one owner in a segment at a time, so the
    last one owns it at the file's end.
    """
    owners = {request.producer: request.owner for request, _ in requests if request.owner}
    return orjson.dumps(owners).decode() if owners else ""


def requests_from_json(text: str, segment: int, base: int, owners_text: str = "") -> tuple[StoredRequest, ...]:
    """The requests of a footer, from what `requests_to_json` and `owners_to_json` wrote.

    Raises `ValueError` for any other text.
    """
    by_producer = orjson.loads(text)
    if not isinstance(by_producer, dict):
        raise ValueError(f"requests: not of the form {EXAMPLE}")
    owners = orjson.loads(owners_text) if owners_text else {}
    if not isinstance(owners, dict) or not all(isinstance(owner, str) for owner in owners.values()):
        raise ValueError('owners: not of the form {"producer": "digest of its owner"}')
    return tuple(
        StoredRequest(RequestId(producer, sequence, owners.get(producer, "")), Position(segment, base + index, count))
        for producer, numbers in by_producer.items()
        for sequence, index, count in _triples(numbers)
    )


def _triples(numbers: object) -> Sequence[tuple[int, int, int]]:
    if not isinstance(numbers, list) or len(numbers) % 3 or not all(type(number) is int for number in numbers):
        raise ValueError(f"requests: not of the form {EXAMPLE}")
    return list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
