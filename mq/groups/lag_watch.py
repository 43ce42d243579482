"""Measures the lag of groups for the metrics of their coordinator, while somebody asks for metrics."""

from collections.abc import Callable
from itertools import islice

from filer.clock import Clock
from filer.errors import BraidError
from groups.fold import GroupProgress
from groups.stream.progress import StreamProgress
from mq.groups.group_source import GroupSource
from mq.groups.lag import OldestTimes, lag_of
from mq.groups.segment_groups import Known
from mq.metrics.group_metrics import MOST_GROUPS, GroupMetrics, GroupSample

ROUND_SECONDS = 10.0


class LagWatch:
    """Looks at all groups of this broker every `ROUND_SECONDS`, if metrics were asked for meanwhile.

    `known` gives the groups, `source` where their messages are. Of a message that stays the oldest, the time is read
    once.
    """

    def __init__(
        self,
        known: Callable[[], list[Known]],
        source: Callable[[str, GroupProgress], GroupSource],
        metrics: GroupMetrics,
        clock: Clock,
    ) -> None:
        self._known, self._source, self._metrics, self._clock = known, source, metrics, clock
        self._oldest: dict[tuple[str, str], OldestTimes] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            if self._metrics.was_asked:
                self._metrics.was_asked = False
                await self.look()
            await self._clock.sleep(ROUND_SECONDS)

    async def look(self) -> None:
        """Measure once. What cannot be measured now is left out."""
        groups = self._known()
        samples: dict[tuple[str, str], GroupSample] = {}
        self._oldest = {each.name: self._oldest.get(each.name, {}) for each in islice(groups, MOST_GROUPS)}
        for each in islice(groups, MOST_GROUPS):
            try:
                samples[each.name] = await self._sample(each)
            except BraidError:
                continue
            await self._clock.sleep(0)  # others go first
        self._metrics.show(samples, len(groups))

    async def _sample(self, known: Known) -> GroupSample:
        topic, _ = known.name
        progress, source = known.progress, self._source(topic, known.progress)
        lag = await lag_of(progress, known.positions, source, self._clock, self._oldest[known.name])
        is_at_most = None if progress.source is None else not lag.is_exact
        if isinstance(progress, StreamProgress):
            counts, members = (0, 0, progress.skipped_count), len(progress.members)
        else:
            counts, members = (progress.dead_count, progress.expired_count, progress.skipped_count), 0
        return GroupSample(lag.messages, lag.seconds, known.in_flight, *counts, members, is_at_most)
