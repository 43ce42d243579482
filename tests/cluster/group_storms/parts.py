"""How a worker names the messages that it acks or gives back."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from tests.cluster.group_storms.answers import Given


class Part(NamedTuple):
    """Messages that are named together, and their name in a request."""

    named: dict[str, Any]
    messages: Sequence[Given]

    @property
    def is_scattered(self) -> bool:
        """Whether messages that it does not name lie between its own."""
        return self.messages[-1].offset - self.messages[0].offset >= len(self.messages)

    def outcomes(self, accepted: Sequence[Sequence[int]]) -> Iterator[tuple[Given, bool]]:
        """For each whether it lies in the ranges that were accepted."""
        return ((each, any(start <= each.offset < stop for start, stop in accepted)) for each in self.messages)


def one_by_one(given: Sequence[Given]) -> list[Part]:
    """Each by its id."""
    return [Part({"claim": each.claim, "id": each.message}, [each]) for each in given]


def by_claim(given: Sequence[Given]) -> list[Part]:
    """All messages of a claim by its token alone, for who has nothing else of these claims. They come in a row."""
    return [Part({"claim": claim}, list(found)) for claim, found in groupby(given, attrgetter("claim"))]
