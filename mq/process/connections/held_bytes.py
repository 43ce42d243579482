"""The bytes that connections hold together, within a limit."""

from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Held(NamedTuple):
    """How many bytes one connection holds, and since when."""

    since_seconds: float
    size_bytes: int


class HeldBytes(Generic[T]):
    """The bytes that each holds, in the order in which they began. Past the limit the first ones give way."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._total_bytes = 0
        self._held: OrderedDict[T, Held] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, one: T, now_seconds: float, size_bytes: int) -> list[T]:
        """Count that much in all for this one. Returns those that give way."""
        before = self._held.get(one)
        self._held[one] = Held(now_seconds if before is None else before.since_seconds, size_bytes)
        self._total_bytes += size_bytes - (0 if before is None else before.size_bytes)
        giving_way: list[T] = []
        excess_bytes = self._total_bytes - self._limit_bytes
        for each, held in self._held.items():
            if excess_bytes <= 0:
                break
            excess_bytes -= held.size_bytes
            giving_way.append(each)
        return giving_way

    def release(self, one: T) -> None:
        """Count nothing for this one any more."""
        held = self._held.pop(one, None)
        if held is not None:
            self._total_bytes -= held.size_bytes

    def first(self) -> tuple[T, float] | None:
        """Return the one that began first, and when."""
        return next(((one, held.since_seconds) for one, held in self._held.items()), None)

    def since(self) -> dict[T, float]:
        """Return since when each holds bytes, in that order."""
        return {one: held.since_seconds for one, held in self._held.items()}
