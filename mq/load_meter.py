"""How busy one segment is, counted where it is stored and read: file by file, page by page, not message by message."""

import numpy as np
import pyarrow as pa

from filer.clock import Clock
from filer.topic_config import TopicConfig
from filer.topic_state import Segment
from leader.cut_points import SlotLoads
from leader.load_averages import LoadAverages, RecentLoad, SegmentLoad
from mq.slot_counters import SlotCounters

COUNT_SLOTS_FROM, COUNT_SLOTS_UNTIL = 0.5, 0.25
"""Slots are counted once the recent load is above this share of the lowest load that may split the segment, and until
it is below that one."""
LOOKS_A_WINDOW, SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 240, 0.05, 0.25
"""So many files are looked into while the shortest of the rules' windows passes, within these bounds: more would cost
publishers much (some 0.3 ms each) and tell the leader little."""


class LoadMeter:
    """Messages and bytes of a segment that this broker owns, and while it is busy how they lie over its slots."""

    def __init__(self, segment: Segment, config: TopicConfig, clock: Clock) -> None:
        self._range, self._config, self._clock = segment.range, config, clock
        self._ticked_seconds = clock.monotonic_seconds()
        self.averages = LoadAverages(config, now_seconds=self._ticked_seconds)
        self._messages = self._bytes = self._read_messages = self._read_bytes = 0
        self._told: SegmentLoad | None = None
        self._slots: SlotCounters | None = None
        self._slots_due_seconds = 0.0
        self._slots_tell = False

    def count(self, table: pa.Table, size_bytes: int) -> None:
        """Take in a stored file's messages, in the columns of `log_schema`."""
        self._messages += table.num_rows
        self._bytes += size_bytes
        if self._slots is not None and self._clock.monotonic_seconds() >= self._slots_due_seconds:
            self._slots.count(table)
            self._slots_due_seconds = self._clock.monotonic_seconds() + self._pause_seconds

    def count_read(self, messages: int, size_bytes: int) -> None:
        """Take in an answer to a reader."""
        self._read_messages += messages
        self._read_bytes += size_bytes

    def configure(self, config: TopicConfig) -> None:
        """Go by changed settings."""
        self._config = config
        self.averages.configure(config)
        if self._slots is not None:
            self._slots.window_seconds = self._window_seconds

    def tick(self, topic: str, segment: int, *, pending_bytes: int) -> SegmentLoad:
        """Move the averages on to now; what the leader is to hear of the segment, which is now called so."""
        now_seconds = self._clock.monotonic_seconds()
        elapsed_seconds = now_seconds - self._ticked_seconds
        if elapsed_seconds > 0:
            self.averages.tick(
                now_seconds,
                self._messages,
                self._bytes,
                read_messages=self._read_messages,
                read_bytes=self._read_bytes,
            )
            self._ticked_seconds = now_seconds
            self._messages = self._bytes = self._read_messages = self._read_bytes = 0
        load = self._told = self.averages.load(topic, segment, pending_bytes=pending_bytes)
        self._watch_slots(load.recent, elapsed_seconds)
        return load

    @property
    def recent(self) -> RecentLoad | None:
        """How busy the segment is, as of the last tick; None where there was none yet."""
        return None if self._told is None else self._told.shown

    def slot_loads(self) -> SlotLoads | None:
        """How the load lies over the segment's slots.

        None while it is not busy enough to be counted, and before it was for a whole interval: a sudden flood is told
        at the very tick at which counting begins, and a cut by the first few messages would miss it.
        """
        return self._slots.loads() if self._slots is not None and self._slots_tell else None

    @property
    def _window_seconds(self) -> float:
        """The shortest that a split may go by."""
        scaling = self._config.scaling
        return min((rule.for_seconds for rule in scaling.split), default=scaling.merge.for_seconds)

    @property
    def _pause_seconds(self) -> float:
        """Between two files that are looked into."""
        return min(max(self._window_seconds / LOOKS_A_WINDOW, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)

    def _watch_slots(self, recent: float, elapsed_seconds: float) -> None:
        """Count slots only where a split may come: for each segment of a large cluster it would be much memory."""
        rules = self._config.scaling.split
        limit = min((1.0, *(rule.times_target for rule in rules)))
        if self._slots is None and recent > COUNT_SLOTS_FROM * limit:
            generator = np.random.default_rng(int.from_bytes(self._clock.entropy(8), "big"))
            self._slots = SlotCounters(*self._range, window_seconds=self._window_seconds, generator=generator)
            self._slots_tell = False
        elif self._slots is not None and recent < COUNT_SLOTS_UNTIL * limit:
            self._slots = None
        elif self._slots is not None:
            self._slots.fade(elapsed_seconds)
            self._slots_tell = self._slots_tell or elapsed_seconds > 0
