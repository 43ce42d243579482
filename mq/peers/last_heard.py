"""When each of the other brokers last called this one: a broker that calls lives, whatever its address shows."""

from filer.clock import Clock

MOST_BROKERS = 2000
"""How many are remembered. A restarted broker has a new id, so the longest silent are forgotten."""


class LastHeard:
    """Times of the last calls, by the id of the calling broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}

    def note(self, broker: str) -> None:
        """Note that the broker has called."""
        self._seconds.pop(broker, None)
        self._seconds[broker] = self._clock.monotonic_seconds()
        if len(self._seconds) > MOST_BROKERS:
            del self._seconds[next(iter(self._seconds))]

    def within(self, broker: str, seconds: float) -> bool:
        """Whether it has called within that time."""
        heard_seconds = self._seconds.get(broker)
        return heard_seconds is not None and self._clock.monotonic_seconds() - heard_seconds < seconds
