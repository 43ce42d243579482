"""Measures the lag of groups for the metrics of their coordinator, while metrics are asked for."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from filer.clock import Clock
from filer.errors import BraidError
from groups.fold import GroupProgress
from groups.stream.progress import StreamProgress
from mq.base.errors import NotFound
from mq.groups.dead_letter_count import LettersSeen, open_letters
from mq.groups.group_source import GroupSource
from mq.groups.lag import Lag, LagMemory, lag_of
from mq.groups.segment_groups import Known
from mq.metrics.group_metrics import MOST_GROUPS, GroupMetrics, GroupSample

ROUND_SECONDS = 10.0


class _Memory:
    """What was read for one group, and its positions at the last measurement."""

    def __init__(self) -> None:
        self.lag, self.letters = LagMemory(), LettersSeen()
        self.positions: Mapping[int, int] | None = None


class LagWatch:
    """Looks at all groups of this broker every `ROUND_SECONDS`, if metrics were asked for meanwhile.

    `known` returns the groups, `source` where their messages are. Each message of a group is read once. Messages ahead
    of a group are read only while it stays where it is: one that moves on comes upon its delays by itself.
    """

    def __init__(
        self,
        known: Callable[[], list[Known]],
        source: Callable[[str, GroupProgress], GroupSource],
        metrics: GroupMetrics,
        clock: Clock,
    ) -> None:
        self._known, self._source, self._metrics, self._clock = known, source, metrics, clock
        self._memories: dict[tuple[str, str], _Memory] = {}

    async def run(self) -> None:
        """Run until it is cancelled."""
        while True:
            if self._metrics.was_asked:
                self._metrics.was_asked = False
                await self.look()
            await self._clock.sleep(ROUND_SECONDS)

    async def look(self) -> None:
        """Measure once. Leaves out what cannot be measured now."""
        groups = self._known()
        samples: dict[tuple[str, str], GroupSample] = {}
        before, self._memories = self._memories, {}
        for each in islice(groups, MOST_GROUPS):
            memory = self._memories[each.name] = before.get(each.name) or _Memory()
            if (sample := await self._sample(each, memory)) is not None:
                samples[each.name] = sample
            await self._clock.sleep(0)  # others go first
        self._metrics.show(samples, len(groups))

    async def _sample(self, known: Known, memory: _Memory) -> GroupSample | None:
        """Return what is known of a group; None if its topic is gone."""
        (topic, name), progress = known.name, known.progress
        source, lag = self._source(topic, progress), None
        stays, memory.positions = memory.positions == known.positions, dict(known.positions)
        try:
            lag = await lag_of(progress, known.positions, source, self._clock, memory.lag, looks_ahead=stays)
        except NotFound:
            return None
        except BraidError:
            pass  # the rest is reported
        return GroupSample(
            **_of_lag(progress, lag),
            **await _of_mode(source, name, progress, memory.letters),
            in_flight_messages=known.in_flight,
            skipped_messages_total=progress.skipped_count + (0 if lag is None else lag.removed),
        )


def _of_lag(progress: GroupProgress, lag: Lag | None) -> dict[str, Any]:
    if lag is None:
        return {}
    is_at_most = None if progress.source is None else not lag.is_exact
    told = {"lag_messages": lag.messages, "lag_seconds": lag.seconds, "is_at_most": is_at_most}
    return told if isinstance(progress, StreamProgress) else told | {"delayed_messages": lag.delayed}


async def _of_mode(source: GroupSource, name: str, progress: GroupProgress, seen: LettersSeen) -> dict[str, Any]:
    if isinstance(progress, StreamProgress):
        return {"members": len(progress.members)}
    return {
        "open_dead_letters": await open_letters(source, name, progress, seen),
        "dead_messages_total": progress.dead_count,
        "expired_messages_total": progress.expired_count,
    }
