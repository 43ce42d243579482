"""`skew`: how unevenly a topic's messages lie over the slots, and where to cut the slots to even it out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Literal

import numpy as np

from filer.clock import Clock
from filer.even_cuts import even_cut_points
from filer.slots import SLOTS
from filer.store import Store
from filer.topic_state import TopicState
from pipeline.slot_loads import Counts, SlotLoads, count_slots
from pipeline.store_address import StoreAddress
from pipeline.tasks import spread, watched
from pipeline.topic_files import LiveFile, in_parts, list_topic, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Measure = Literal["messages", "bytes"]


@dataclass(frozen=True, slots=True)
class RangeLoad:
    """What fell into the slots `[start, stop)`; `share` is of all that has a key, by the measure chosen."""

    start: int
    stop: int
    messages: int
    size_bytes: int
    share: float


@dataclass(frozen=True, slots=True)
class SkewReport:
    """What a topic's files say of its load: all of it, the hottest slots, the open segments, the parts suggested."""

    topic: str
    by: Measure
    messages: int
    size_bytes: int
    keyless_messages: int
    hottest: tuple[RangeLoad, ...]
    segments: tuple[tuple[int, RangeLoad], ...]
    parts: tuple[RangeLoad, ...]

    @property
    def cut_points(self) -> tuple[int, ...]:
        """The slots between the suggested parts."""
        return tuple(part.start for part in self.parts[1:])


def measure_skew(
    spark: "SparkSession", store: StoreAddress, topic: str, *, parts: int | None, hottest: int, by: Measure
) -> SkewReport:
    """Count all live messages of the topic per slot. Without `parts` as many are suggested as segments are open.

    Raises any `BraidError`.
    """
    state, files = store.run(partial(_find, topic))
    loads = SlotLoads.nothing()
    if tasks := list(in_parts(files)):
        with watched(spark):
            loads = spread(spark, tasks).map(partial(_count, store)).treeReduce(add)
    return report_skew(state, loads, parts=parts or len(state.open_segments), hottest=hottest, by=by)


def report_skew(state: TopicState, loads: SlotLoads, *, parts: int, hottest: int, by: Measure) -> SkewReport:
    """The report from the counts. Raises `InvalidInput` where the slots cannot be cut into so many parts."""
    measure = loads.messages if by == "messages" else loads.size_bytes
    cuts = even_cut_points(measure, 0, SLOTS, parts, observations=int(loads.messages.sum()))
    slots = _hottest(measure, hottest)
    return SkewReport(
        state.topic,
        by,
        int(loads.messages.sum()) + loads.keyless_messages,
        int(loads.size_bytes.sum()) + loads.keyless_bytes,
        loads.keyless_messages,
        tuple(_range_load(loads, measure, slot, slot + 1) for slot in slots),
        tuple((segment.id, _range_load(loads, measure, *segment.range)) for segment in state.open_segments),
        tuple(_range_load(loads, measure, *bounds) for bounds in pairwise((0, *cuts, SLOTS))),
    )


async def _find(topic: str, store: Store, clock: Clock) -> tuple[TopicState, list[LiveFile]]:
    state = await read_topic(store, clock, topic)
    return state, [file for segment in await list_topic(store, state) for file in segment.files]


def _count(store: StoreAddress, files: Sequence[LiveFile]) -> SlotLoads:
    """Runs as a task."""

    async def work(opened: Store, _: Clock) -> SlotLoads:
        return await count_slots(opened, files)

    return store.run(work)


def _hottest(measure: Counts, most: int) -> list[int]:
    """The slots with the most, the first of equals first; none without any."""
    order = np.argsort(-measure, kind="stable")[:most]
    return [int(slot) for slot in order if measure[slot]]


def _range_load(loads: SlotLoads, measure: Counts, start: int, stop: int) -> RangeLoad:
    share = float(measure[start:stop].sum() / max(measure.sum(), 1))
    return RangeLoad(start, stop, int(loads.messages[start:stop].sum()), int(loads.size_bytes[start:stop].sum()), share)
