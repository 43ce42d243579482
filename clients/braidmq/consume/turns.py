"""Decides which claimed message is next. If a group keeps the order of keys, messages of a key take turns."""

import threading
from collections import deque

from braidmq.consume.delivery import BaseDelivery


class Turns:
    """Claimed messages that wait to be worked on.

    Of the messages with a `turn_key`, one of each key is ready or in work at a time, the oldest first: the others stand
    behind it in a line until its turn is `over`. All others are ready at once. Any thread may call any method.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: deque[BaseDelivery] = deque()
        # The first of each line is ready or in work.
        self._lines: dict[bytes, deque[BaseDelivery]] = {}

    def __len__(self) -> int:
        """How many are ready."""
        return len(self._ready)

    def add(self, delivery: BaseDelivery) -> None:
        """Add a claimed message. Messages of a key come in their order."""
        with self._lock:
            if delivery.turn_key is not None:
                line = self._lines.setdefault(delivery.turn_key, deque())
                line.append(delivery)
                if len(line) > 1:
                    return
            self._ready.append(delivery)

    def take(self, now_seconds: float) -> BaseDelivery | None:
        """The next one to work on; None if none is ready, or if the lease of the first may have run out.

        Another worker may have an earlier message of its key then: no work on it begins before a broker was asked.
        """
        with self._lock:
            if not self._ready or self._is_doubtful(now_seconds):
                return None
            delivery = self._ready.popleft()
            delivery.is_begun = True
            return delivery

    def must_ask(self, now_seconds: float) -> bool:
        """Whether the lease of the first that is ready may have run out."""
        with self._lock:
            return bool(self._ready) and self._is_doubtful(now_seconds)

    def over(self, delivery: BaseDelivery, *, goes_on: bool) -> list[BaseDelivery]:
        """The turn of a message is over: the next of its key is ready if that `goes_on`. Returns those that go back."""
        with self._lock:
            line = self._line_of(delivery)
            if line is None or line[0] is not delivery:
                return []
            line.popleft()
            if goes_on and line:
                self._ready.append(line[0])
                return []
            del self._lines[delivery.turn_key or b""]
            return list(line)

    def give_up(self, delivery: BaseDelivery) -> list[BaseDelivery]:
        """Remove all messages of the message's key that are not begun, or the message alone if it has no line."""
        with self._lock:
            line = self._line_of(delivery)
            if line is None:
                return self._taken_out([delivery])
            begun = deque(each for each in line if each.is_begun)
            waiting = [each for each in line if not each.is_begun]
            if begun:
                self._lines[delivery.turn_key or b""] = begun
            else:
                del self._lines[delivery.turn_key or b""]
            self._taken_out(waiting[:1])
            return waiting

    def clear(self) -> list[BaseDelivery]:
        """Remove all messages that are not begun."""
        with self._lock:
            waiting = list(self._ready)
            self._ready.clear()
            for key, line in list(self._lines.items()):
                if line[0].is_begun:
                    self._lines[key] = deque([line[0]])
                    waiting += [each for each in line if not each.is_begun]
                else:
                    del self._lines[key]
                    waiting += list(line)[1:]
            return waiting

    def _is_doubtful(self, now_seconds: float) -> bool:
        first = self._ready[0]
        return first.turn_key is not None and now_seconds >= first.sure_until_seconds

    def _line_of(self, delivery: BaseDelivery) -> "deque[BaseDelivery] | None":
        return None if delivery.turn_key is None else self._lines.get(delivery.turn_key)

    def _taken_out(self, waiting: list[BaseDelivery]) -> list[BaseDelivery]:
        """Those that were ready, and no longer are."""
        found = [each for each in waiting if each in self._ready]
        for each in found:
            self._ready.remove(each)
        return found
