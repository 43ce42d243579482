"""What successors know of producers, through any splits, merges and rolls: against a model that remembers each slot."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from filer.clock import ManualClock, settle
from filer.format.requests import Position, RequestId, StoredRequest
from filer.keys import FileName
from filer.segment.inheritance import Inheritance, handed_over
from filer.segment.live_files import FileFacts
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.slots import SLOTS, equal_ranges
from filer.topic.topic_state import Segment
from tests.support.topic.lineages import Lineage

SAMPLE = range(0, SLOTS, SLOTS // 32)
"""One slot of each range that segments can have here."""
WIDTH = SLOTS // 32


@dataclass
class Topic:
    """Open segments with their owners' indexes, beside where each slot's part of each request was stored first."""

    lineage: Lineage = field(default_factory=Lineage)
    indexes: dict[int, SegmentIndex] = field(default_factory=dict)
    first: dict[int, dict[RequestId, Position]] = field(default_factory=lambda: defaultdict(dict))

    def open_heirs(self) -> None:
        state = self.lineage.state()
        for segment in self.lineage.open:
            if segment.id not in self.indexes:
                windows = handed_over(state, segment, self.indexes)
                assert windows is not None
                self.indexes[segment.id] = SegmentIndex()
                self.indexes[segment.id].inherit(windows)

    def store(self, segment: Segment, request: RequestId) -> None:
        """Its part of a request, whether or not a predecessor has a part of it already."""
        index = self.indexes[segment.id]
        position = Position(segment.id, index.end, 1)
        facts = FileFacts(FileName(index.end), index.end + 1, 1, 0, 0, start=index.end)
        index.append(facts, [StoredRequest(request, position)])
        for slot in SAMPLE:
            if segment.start_slot <= slot < segment.stop_slot:
                self.first[slot].setdefault(request, position)

    def seal(self, segment: Segment, *, through_store: bool) -> int:
        """Its end; the windows as the seal has them."""
        index = self.indexes[segment.id]
        index.append(FileFacts(FileName(index.end), index.end, 1, 0, 0, sealed=True, start=index.end))
        if through_store:
            index.windows = ProducerWindows.from_bytes(index.windows.to_bytes())
        return index.end

    def load(self, parts: int, *, through_store: bool) -> None:
        """A load of so many segments, and successors of the ranges that were open before."""
        before = self.lineage.open
        ends = [self.seal(segment, through_store=through_store) for segment in before]
        self.lineage.cut_anew(before, [part * SLOTS // parts for part in range(1, parts)], ends)
        loaded = self.lineage.open
        for segment in loaded:
            self.lineage.segments[segment.id] = segment.model_copy(update={"load": "l"})
        self.lineage.cut_anew(self.lineage.open, [segment.start_slot for segment in before[1:]], [4] * len(loaded))

    def check(self, requests: list[RequestId]) -> None:
        for segment in self.lineage.open:
            windows = self.indexes[segment.id].windows
            assert (windows.start, windows.stop) == segment.range
            for request in requests:
                for found in windows.look_up(request):
                    for slot in SAMPLE:
                        if found.start <= slot < found.stop:
                            assert found.position == self.first[slot].get(request)


REQUESTS = [RequestId(producer, sequence) for producer in "pq" for sequence in range(1, 4)]
STEPS = st.tuples(
    st.sampled_from(["store", "store", "store", "split", "merge", "roll", "load"]),
    st.integers(0, 31),
    st.integers(1, 3),
    st.sampled_from(REQUESTS),
    st.booleans(),
)


@given(st.integers(1, 4), st.lists(STEPS, max_size=40))
def test_a_part_that_was_stored_is_known_where_it_was_stored_first_and_nowhere_else(
    segments: int, steps: list[tuple[str, int, int, RequestId, bool]]
) -> None:
    topic = Topic()
    for start, stop in equal_ranges(segments):
        topic.lineage.add(start // WIDTH * WIDTH, stop // WIDTH * WIDTH)
    topic.open_heirs()
    for what, index, count, request, through_store in steps:
        opened = topic.lineage.open
        segment = opened[index % len(opened)]
        if what == "store":
            topic.store(segment, request)
        elif what == "load":
            topic.load(count * 3, through_store=through_store)
        elif what == "merge":
            together = opened[index % len(opened) :][: count + 1]
            topic.lineage.merge(together, [topic.seal(each, through_store=through_store) for each in together])
        else:
            inside = [slot for slot in SAMPLE if segment.start_slot < slot < segment.stop_slot]
            cuts = inside[:: len(inside) // count + 1][:count] if what == "split" else []
            topic.lineage.split(segment, cuts, topic.seal(segment, through_store=through_store))
        topic.open_heirs()
    topic.check(REQUESTS)


def test_a_predecessor_whose_windows_are_not_at_hand_is_not_guessed_at() -> None:
    topic = Topic()
    topic.lineage.add(0, WIDTH)
    topic.lineage.add(WIDTH, SLOTS)
    topic.open_heirs()
    ends = [topic.seal(segment, through_store=False) for segment in topic.lineage.open]
    topic.lineage.merge(topic.lineage.open, ends)
    (heir,) = topic.lineage.open
    assert handed_over(topic.lineage.state(), heir, topic.indexes) is not None
    topic.indexes[1].forget_windows()
    assert handed_over(topic.lineage.state(), heir, topic.indexes) is None
    del topic.indexes[1]
    assert handed_over(topic.lineage.state(), heir, topic.indexes) is None


async def test_nobody_waits_for_what_is_tried_no_more() -> None:
    async def never() -> ProducerWindows:
        await asyncio.Future()
        raise AssertionError

    inheritance = Inheritance(ManualClock(), SegmentIndex(), never)
    waits = asyncio.create_task(inheritance.wait())
    await settle()
    assert not waits.done() and not inheritance.over.is_set()
    inheritance.stop()
    await waits
    assert inheritance.over.is_set() and not inheritance.complete
