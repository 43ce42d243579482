"""Finds the transfers under way that do not get on."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Window(NamedTuple):
    began_seconds: float
    done_bytes: int


class Pace(Generic[T]):
    """Transfers; each has to move so many bytes in each window of time.

    Windows, not an average over the whole: a client that sent much at first may not rest on it. All windows have the
    same length, so the transfers lie in the order of their ends, and nothing is looked at before.
    """

    def __init__(self, window_seconds: float, least_bytes_per_second: int) -> None:
        self._window_seconds = window_seconds
        self._least_bytes = window_seconds * least_bytes_per_second
        self._windows: OrderedDict[T, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def begin(self, transfer: T, now_seconds: float, done_bytes: int) -> None:
        """Begin a transfer, with `done_bytes` done."""
        self._windows[transfer] = _Window(now_seconds, done_bytes)

    def end(self, transfer: T) -> None:
        """End a transfer, if it is there."""
        self._windows.pop(transfer, None)

    def late(self, now_seconds: float, done_bytes: Callable[[T], int | None]) -> list[T]:
        """Return those that moved too little in the window that has just ended. None if the other side may not move."""
        late: list[T] = []
        while self._windows:
            transfer, window = next(iter(self._windows.items()))
            if now_seconds - window.began_seconds < self._window_seconds:
                break
            done = done_bytes(transfer)
            if done is not None and done - window.done_bytes < self._least_bytes:
                late.append(transfer)
                del self._windows[transfer]
            else:
                self._windows[transfer] = _Window(now_seconds, window.done_bytes if done is None else done)
                self._windows.move_to_end(transfer)
        return late
