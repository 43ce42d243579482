"""Pauses for work that fails again and again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from filer.clock import Clock
from filer.event_log import EventLog
from mq.metrics.metrics import Metrics

LONGEST_PAUSE_SECONDS = 600.0

_log = EventLog(__name__)


@dataclass(slots=True)
class _Pause:
    """How many times work has failed in a row, and the time of the next try."""

    failures: int = 0
    until_seconds: float = 0.0


class FailurePauses:
    """Runs pieces of work. One that fails is logged, counted, and skipped for a while; the others go on.

    After a first failure the next round tries again. Each further failure in a row doubles the pause, from
    `interval_seconds` up to ten minutes.
    """

    def __init__(self, clock: Clock, metrics: Metrics, *, interval_seconds: float) -> None:
        self._clock, self._metrics, self._interval_seconds = clock, metrics, interval_seconds
        # By topic, then by the kind of work.
        self._pauses: dict[str, dict[str, _Pause]] = {}

    async def attempt(self, topic: str, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, unless it failed lately. Raises nothing that the work raises."""
        pause = self._pauses.get(topic, {}).get(what)
        if pause is not None and self._clock.monotonic_seconds() < pause.until_seconds:
            return
        try:
            await work()
            self._forget(topic, what)
        except Exception as error:
            pause = self._pauses.setdefault(topic, {}).setdefault(what, _Pause())
            wait_seconds = self._interval_seconds * (2 ** min(pause.failures, 20) - 1)
            pause.failures += 1
            pause.until_seconds = self._clock.monotonic_seconds() + min(wait_seconds, LONGEST_PAUSE_SECONDS)
            self._metrics.upkeep.maintenance_errors.inc()
            _log.warning("upkeep_failed", topic=topic, work=what, error=error)

    def concern(self, topic: str) -> bool:
        """Whether work on that topic has failed, and will be tried again."""
        return topic in self._pauses

    def forget_old(self) -> None:
        """Forget pauses that ended long ago: their topics or segments may be gone."""
        longest_ago = self._clock.monotonic_seconds() - LONGEST_PAUSE_SECONDS
        for topic, pauses in list(self._pauses.items()):
            for what in [what for what, pause in pauses.items() if pause.until_seconds < longest_ago]:
                self._forget(topic, what)

    def _forget(self, topic: str, what: str) -> None:
        pauses = self._pauses.get(topic, {})
        pauses.pop(what, None)
        if not pauses:
            self._pauses.pop(topic, None)
