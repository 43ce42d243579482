"""Draws of which each kind comes up as often as any other, in an order that nobody knows."""

import random
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Deck(Generic[T]):
    """Shuffled cards that are drawn one after the other, and shuffled again when there are none left."""

    def __init__(self, cards: Sequence[T], chance: random.Random) -> None:
        self._cards, self._chance = cards, chance
        self._left: list[T] = []

    def draw(self, count: int) -> Iterator[T]:
        """The next cards."""
        for _ in range(count):
            if not self._left:
                self._left = self._chance.sample(self._cards, len(self._cards))
            yield self._left.pop()
