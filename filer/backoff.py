"""Pauses between the tries of one call: each twice as long as the one before, up to a limit."""

from filer.clock import Clock

RETRY_FIRST_SECONDS = 0.05
RETRY_LONGEST_SECONDS = 2.0
_MOST_DOUBLINGS = 60


def backoff_seconds(failures: int, *, first_seconds: float, longest_seconds: float) -> float:
    """The pause after so many failures in a row, from 1 on."""
    return min(first_seconds * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest_seconds)


class Backoff:
    """The growing pauses of one series of tries."""

    def __init__(
        self,
        clock: Clock,
        *,
        first_seconds: float = RETRY_FIRST_SECONDS,
        longest_seconds: float = RETRY_LONGEST_SECONDS,
    ) -> None:
        self._clock = clock
        self._first_seconds, self._longest_seconds = first_seconds, longest_seconds
        self._failures = 0

    def next_seconds(self) -> float:
        """The length of the next pause, for a caller that waits for something meanwhile."""
        self._failures += 1
        return backoff_seconds(self._failures, first_seconds=self._first_seconds, longest_seconds=self._longest_seconds)

    async def pause(self, *, jitter: bool = False) -> None:
        """Sleep before the next try; with `jitter` up to twice as long, so that rivals do not meet again."""
        seconds = self.next_seconds()
        await self._clock.sleep(seconds * (1 + self._clock.entropy(1)[0] / 255) if jitter else seconds)

    def reset(self) -> None:
        """Begin with the shortest pause again, after a try that succeeded."""
        self._failures = 0
