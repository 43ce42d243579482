"""A cache that is bounded by the bytes of what it holds."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """The most recently used values, up to a number of bytes together."""

    def __init__(self, limit_bytes: int) -> None:
        self._most_bytes = self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value under that key, if it is still held."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Hold a value of that size, unless it is larger than all that may be held."""
        if key in self._values or size_bytes > self._limit_bytes:
            return
        self._values[key] = value, size_bytes
        self._held_bytes += size_bytes
        self._evict()

    def limit(self, most_bytes: int) -> None:
        """Hold no more than that from now on, and never more than the limit at the beginning."""
        self._limit_bytes = min(self._most_bytes, max(most_bytes, 0))
        self._evict()

    def _evict(self) -> None:
        while self._held_bytes > self._limit_bytes:
            _, (_, size_bytes) = self._values.popitem(last=False)
            self._held_bytes -= size_bytes
