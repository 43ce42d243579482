"""Python's garbage collector in a serving process."""

import gc
from typing import Any

from filer.clock import Clock

# Python's own thresholds. `mq` starts with others.
_THRESHOLDS = (700, 10, 10)
YOUNG_OBJECTS = 2_000
"""So many more objects than before cause a collection of the young ones; Python's default is 700."""
FULL_SECONDS = 60.0
"""Between two full collections."""
_OLDEST, _NEVER, _LOOK_SECONDS = 2, 1_000_000_000, 1.0


def spare_what_is_loaded() -> None:
    """Exclude all present objects from collection: modules and the setup live as long as the process.

    A full collection visits every object while nothing else runs. The libraries' objects alone take some 100 ms. It
    happens whenever a broker has made a quarter as many objects of its own, and publishers waited for it measurably.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def collect_less_often() -> None:
    """Collect young objects when the requests under way are not most of them.

    A request has some 40 objects until it is answered. With 64 at once, by default, each wave of them brought three
    collections that found no garbage, and took a fourteenth of the event loop's time for single messages.
    """
    _, *older = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *older)


async def collect_all_seldom(clock: Clock) -> None:
    """Let a full collection come at most once in `FULL_SECONDS`, until cancelled.

    It visits every live object, while nothing else runs: 50 to 100 ms with a thousand topics. Python begins one
    whenever there is a quarter more than at the one before, so clients that create topics caused one after the other.
    Objects outside cycles, which are nearly all, are freed at once all the same.
    """
    pauses = _FullCollectionPauses(clock)  # all has been collected just now: see `spare_what_is_loaded`
    gc.callbacks.append(pauses.collected)
    try:
        while True:
            pauses.look()
            await clock.sleep(_LOOK_SECONDS)
    finally:
        gc.callbacks.remove(pauses.collected)
        pauses.end()


class _FullCollectionPauses:
    """Sets after how many other collections a full one may come, which Python then begins if it is worth it."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._threshold = clock, gc.get_threshold()
        # Set while none may come.
        self._last_seconds: float | None = None
        self._pause()

    def collected(self, phase: str, info: dict[str, Any]) -> None:
        """Note that a collection begins or ends, in any thread."""
        if phase == "stop" and info["generation"] == _OLDEST:
            self._pause()

    def look(self) -> None:
        """Allow a full collection once the pause is over."""
        last_seconds = self._last_seconds
        if last_seconds is not None and self._clock.monotonic_seconds() - last_seconds >= FULL_SECONDS:
            self._last_seconds = None
            self.end()

    def end(self) -> None:
        """Allow full collections."""
        gc.set_threshold(*self._threshold)

    def _pause(self) -> None:
        self._last_seconds = self._clock.monotonic_seconds()
        young, middle, _ = self._threshold
        gc.set_threshold(young, middle, _NEVER)
