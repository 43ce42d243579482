"""Which lines of the log are written where the same happens again and again: a line a request would fill a disk.

Of a warning about one subject (a topic, a broker, an object, …) the first few in a minute are written, and of all
warnings of one name some more. The others are counted, and the count is written when the minute is over.
"""

from dataclasses import dataclass
from typing import NamedTuple

WINDOW_SECONDS = 60.0
MOST_OF_SUBJECT = 5
MOST_OF_NAME = 30


class Suppressed(NamedTuple):
    """So many lines of this name were not written. `subject` is empty where they had different ones."""

    name: str
    subject: str
    lines: int


@dataclass(slots=True)
class _Window:
    """What has been written in the minute that began then, and what has not."""

    began_seconds: float
    written: int = 0
    suppressed: int = 0


class RepeatLimit:
    """Decides line by line. Memory is bounded where the number of names is: subjects are kept for written lines only.

    Whoever asks says what time it is; times may not go back.
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
        """What was suppressed in the minutes that are over; each is told once. Call it before `admits`."""
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
