"""Limits repeated lines of the log: a line for each request would fill a disk.

For each subject (a topic, a broker, an object, …), the first few warnings in a minute are written, and for all warnings
of one name some more. The others are counted, and the count is written when the minute is over.
"""

from dataclasses import dataclass
from typing import NamedTuple

WINDOW_SECONDS = 60.0
MOST_OF_SUBJECT = 5
MOST_OF_NAME = 30


class Suppressed(NamedTuple):
    """So many lines of this name were not written. `subject` is empty if they had different ones."""

    name: str
    subject: str
    lines: int


@dataclass(slots=True)
class _Window:
    """What has been written in the minute that began then, and what was left out."""

    began_seconds: float
    written: int = 0
    suppressed: int = 0


class RepeatLimit:
    """Decides line by line. Memory is bounded if the number of names is: it keeps subjects of written lines only.

    The caller passes the time; times may not go back.
    """

    def __init__(self) -> None:
        # In the order in which they began.
        self._windows: dict[tuple[str, str], _Window] = {}

    def admits(self, name: str, subject: str, now_seconds: float) -> bool:
        """Whether to write a line of that name about that subject now."""
        of_name = self._window(name, "", now_seconds)
        of_subject = self._windows.get((name, subject))
        if of_subject is not None and of_subject.written >= MOST_OF_SUBJECT:
            of_subject.suppressed += 1
            return False
        if of_name.written >= MOST_OF_NAME:
            of_name.suppressed += 1
            return False
        of_name.written += 1
        if subject:
            self._window(name, subject, now_seconds).written += 1
        return True

    def ended(self, now_seconds: float) -> list[Suppressed]:
        """Return what was suppressed in finished minutes, each once. Call it before `admits`."""
        found = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if now_seconds - window.began_seconds < WINDOW_SECONDS:
                break
            del self._windows[key]
            if window.suppressed:
                found.append(Suppressed(*key, window.suppressed))
        return found

    def _window(self, name: str, subject: str, now_seconds: float) -> _Window:
        return self._windows.setdefault((name, subject), _Window(now_seconds))
