"""`skew`: count how unevenly a topic's messages are spread over the slots, and suggest where to cut the slots."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from filer.clock import Clock
from filer.slots import SLOTS
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from filer.topic.topic_state import TopicState
from leader.policy.even_cuts import even_cut_points
from pipeline.skew.choices import Measure
from pipeline.skew.slot_counts import Counts, SlotCounts, count_slots
from pipeline.stores import run_on_store
from pipeline.topic_files import LiveFile, in_parts, list_topic, read_topic
from pipeline.workers import Workers


@dataclass(frozen=True, slots=True)
class RangeCounts:
    """The messages in the slots `[start, stop)`. `share` is their part of all messages with a key, by the measure."""

    start: int
    stop: int
    messages: int
    size_bytes: int
    share: float


@dataclass(frozen=True, slots=True)
class SkewReport:
    """The counts of a topic's files: in total, by hottest slots, by open segments and by suggested parts."""

    topic: str
    by: Measure
    messages: int
    size_bytes: int
    keyless_messages: int
    hottest: tuple[RangeCounts, ...]
    segments: tuple[tuple[int, RangeCounts], ...]
    parts: tuple[RangeCounts, ...]

    @property
    def cut_points(self) -> tuple[int, ...]:
        """The slots between the suggested parts."""
        return tuple(part.start for part in self.parts[1:])


def measure_skew(
    workers: Workers, store: StoreAddress, topic: str, *, parts: int | None, hottest: int, by: Measure
) -> SkewReport:
    """Count all live messages of the topic per slot. `parts` is by default the number of open segments.

    Raises any `BraidError`.
    """
    state, files = run_on_store(store, partial(_find, topic))
    counts = SlotCounts.empty()
    if tasks := list(in_parts(files)):
        size_bytes = sum(file.size_bytes for file in files)
        counts = workers.add_up(tasks, partial(_count, store), files=len(files), size_bytes=size_bytes)
    return report_skew(state, counts, parts=parts or len(state.open_segments), hottest=hottest, by=by)


def report_skew(state: TopicState, counts: SlotCounts, *, parts: int, hottest: int, by: Measure) -> SkewReport:
    """Make the report from the counts. Raises `InvalidInput` if the slots cannot be cut into so many parts."""
    measure = counts.messages if by == "messages" else counts.size_bytes
    cuts = even_cut_points(measure, 0, SLOTS, parts, observations=int(counts.messages.sum()))
    slots = _hottest(measure, hottest)
    return SkewReport(
        state.topic,
        by,
        int(counts.messages.sum()) + counts.keyless_messages,
        int(counts.size_bytes.sum()) + counts.keyless_bytes,
        counts.keyless_messages,
        tuple(_range_counts(counts, measure, slot, slot + 1) for slot in slots),
        tuple((segment.id, _range_counts(counts, measure, *segment.range)) for segment in state.open_segments),
        tuple(_range_counts(counts, measure, *bounds) for bounds in pairwise((0, *cuts, SLOTS))),
    )


async def _find(topic: str, store: Store, clock: Clock) -> tuple[TopicState, list[LiveFile]]:
    state = await read_topic(store, clock, topic)
    return state, [file for segment in await list_topic(store, state) for file in segment.files]


def _count(store: StoreAddress, files: Sequence[LiveFile]) -> SlotCounts:
    """Count the messages of some files. Runs as a task."""

    async def work(opened: Store, _: Clock) -> SlotCounts:
        return await count_slots(opened, files)

    return run_on_store(store, work)


def _hottest(measure: Counts, most: int) -> list[int]:
    """Return the slots with the highest counts, the lower slot first among equals. Leaves out empty slots."""
    order = np.argsort(-measure, kind="stable")[:most]
    return [int(slot) for slot in order if measure[slot]]


def _range_counts(counts: SlotCounts, measure: Counts, start: int, stop: int) -> RangeCounts:
    share = float(measure[start:stop].sum() / max(measure.sum(), 1))
    return RangeCounts(
        start, stop, int(counts.messages[start:stop].sum()), int(counts.size_bytes[start:stop].sum()), share
    )
