"""Splits and merges as people ask for them: what is refused and why, what is waited for, what is done already."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from filer.clock import ManualClock
from filer.errors import BraidError, InvalidInput, OutcomeUnknown
from filer.slots import SLOTS
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from leader.policy.cut_points import SlotTraffic
from leader.transitions import Begin, BrokersFor, SealedEnd, begin_replacement, finished, new_topic
from mq.base.errors import Conflict, NotFound, Repeatable, SegmentNotOpen, TransitionUnderWay
from mq.transitions import split_merge_requests
from mq.transitions.split_merge_requests import TRIES, MergeRequest, SplitRequest, carry_out


def brokers_for(index: int) -> tuple[str, ...]:
    return (f"b{index}",)


class Shape:
    """A topic's state and an executor that changes it; `before` is what others do before each change."""

    def __init__(self, segments: int = 1, **config: Any) -> None:
        self.clock = ManualClock()
        self.state = new_topic("t", TopicConfig(**config), segments, brokers_for, now_us=1)
        self.before: Callable[[TopicState], TopicState] = lambda state: state
        self.changes = 0
        self.failure: BraidError | None = None
        self.seen: SlotTraffic | None = None
        self.asked: list[int] = []

    def brokers_for(self, topic: str, config: TopicConfig, count: int) -> BrokersFor:
        return brokers_for

    async def slot_traffic(self, topic: str, segment: Segment) -> SlotTraffic | None:
        assert topic == "t" and segment.state == "open"
        self.asked.append(segment.id)
        return self.seen

    async def change(self, topic: str, begin: Begin) -> TopicState | None:
        self.changes += 1
        self.state = self.before(self.state)
        self.state = begin(self.state) or self.state
        if self.failure is not None:
            raise self.failure
        self.finish()
        return self.state

    def finish(self) -> None:
        if (record := self.state.transition) is not None:
            after = finished(self.state, record, dict.fromkeys(record.seal, SealedEnd(7)), now_us=2)
            assert after is not None
            self.state = after

    async def do(self, wanted: SplitRequest | MergeRequest) -> list[tuple[int, tuple[int, int]]]:
        _, successors = await carry_out(self, self, self.clock, self.state, wanted)
        return [(s.id, s.range) for s in successors]

    async def refused(self, wanted: SplitRequest | MergeRequest, error: type[BraidError], words: str) -> BraidError:
        before = self.state
        with pytest.raises(error, match=words) as caught:
            await self.do(wanted)
        assert self.state == before
        return caught.value


@pytest.mark.parametrize(
    ("wanted", "ranges"),
    [
        (SplitRequest(0), [(0, 32768), (32768, SLOTS)]),
        (SplitRequest(0, parts=4), [(0, 16384), (16384, 32768), (32768, 49152), (49152, SLOTS)]),
        (SplitRequest(0, at=(10, 11)), [(0, 10), (10, 11), (11, SLOTS)]),
    ],
)
async def test_a_split(wanted: SplitRequest, ranges: list[tuple[int, int]]) -> None:
    shape = Shape()
    assert await shape.do(wanted) == list(enumerate(ranges, start=1))
    assert [s.brokers for s in shape.state.open_segments] == [(f"b{n}",) for n in range(len(ranges))]
    assert shape.state.segments[0].successors == tuple(range(1, len(ranges) + 1))


@pytest.mark.parametrize("pair", [(0, 1), (1, 0)])
async def test_a_merge_of_either_with_the_other(pair: tuple[int, int]) -> None:
    shape = Shape(2)
    assert await shape.do(MergeRequest(*pair)) == [(2, (0, SLOTS))]
    assert shape.state.segments[2].predecessors == (0, 1)


async def test_what_has_been_done_is_not_done_again() -> None:
    shape = Shape()
    first = await shape.do(SplitRequest(0, parts=3))
    assert await shape.do(SplitRequest(0, parts=3)) == first
    assert await shape.do(MergeRequest(2, 3)) == await shape.do(MergeRequest(3, 2)) == [(4, (first[1][1][0], SLOTS))]
    assert await shape.do(SplitRequest(0, parts=3)) == first, "its successors are told, sealed or not"
    assert len(shape.state.segments) == 5


def seen_at(*slots: int, width: int = SLOTS) -> SlotTraffic:
    """As many messages in each of these slots, and in none besides."""
    messages = np.zeros(width)
    messages[list(slots)] = 1000
    return SlotTraffic(messages, messages, 1000 * len(slots))


async def test_parts_share_the_load_that_the_owner_has_seen() -> None:
    shape = Shape()
    shape.seen = seen_at(10, 20, 30, 40)
    [(_, (_, cut)), _] = await shape.do(SplitRequest(0))
    assert 20 < cut <= 30
    assert shape.asked == [0]


async def test_where_no_split_can_be_nobody_looks_for_its_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tens of thousands of them hold up the loop for a while."""
    looked: list[int] = []
    monkeypatch.setattr(
        split_merge_requests, "equal_parts", lambda seen, start, stop, parts, target: looked.append(parts)
    )
    await Shape(max_segments=3).refused(SplitRequest(0, parts=60_000), Conflict, "max_segments is 3")
    await Shape(2).refused(SplitRequest(0, parts=60_000), InvalidInput, "cannot be cut into 60000 parts")
    assert looked == []


async def test_the_same_again_is_done_whatever_the_load_is_by_then() -> None:
    shape = Shape()
    shape.seen = seen_at(10, 20, 30, 40)
    first = await shape.do(SplitRequest(0))
    shape.seen = seen_at(60_000, 60_001)
    assert await shape.do(SplitRequest(0)) == first
    assert (len(shape.state.segments), shape.asked) == (3, [0]), "nobody is asked for what is sealed"


async def test_slots_that_are_named_count_whatever_the_load() -> None:
    shape = Shape()
    shape.seen = seen_at(10, 20)
    assert await shape.do(SplitRequest(0, at=(500,))) == [(1, (0, 500)), (2, (500, SLOTS))]
    assert shape.asked == []


async def test_a_load_of_another_range_counts_for_nothing() -> None:
    shape = Shape()
    shape.seen = seen_at(10, 20, width=100)
    assert await shape.do(SplitRequest(0)) == [(1, (0, 32768)), (2, (32768, SLOTS))]


async def test_successors_that_are_gone_are_not_told() -> None:
    """Two of three: that was no split in two."""
    shape = Shape()
    await shape.do(SplitRequest(0, parts=3))
    segments = tuple(s for s in shape.state.segments if s.id != 3)
    shape.state = shape.state.model_copy(update={"segments": segments})
    for parts in (2, 3):
        await shape.refused(SplitRequest(0, parts=parts), SegmentNotOpen, "it is followed by 1, 2, 3")


async def test_a_sealed_segment_names_its_successors() -> None:
    shape = Shape()
    await shape.do(SplitRequest(0))
    for wanted in (SplitRequest(0, at=(5,)), SplitRequest(0, parts=3), MergeRequest(0, 1), MergeRequest(1, 0)):
        error = await shape.refused(wanted, SegmentNotOpen, "segment 0 of topic 't' is sealed; it is followed by 1, 2")
        assert isinstance(error, SegmentNotOpen) and error.successors == (1, 2)


async def test_two_sealed_ones_that_were_not_merged_with_each_other() -> None:
    shape = Shape(2)
    await shape.do(SplitRequest(0))
    await shape.do(SplitRequest(1))
    await shape.refused(MergeRequest(0, 1), SegmentNotOpen, "segment 0 of topic 't' is sealed; it is followed by 2, 3")


@pytest.mark.parametrize("at", [(0,), (SLOTS,), (20, 10), (10, 10), (-1,), ()])
async def test_slots_that_cut_nothing(at: tuple[int, ...]) -> None:
    await Shape().refused(
        SplitRequest(0, at=at), InvalidInput, r"segment 0 has the slots \[0, 65536\): it cannot be cut at"
    )


async def test_more_parts_than_slots() -> None:
    shape = Shape()
    await shape.do(SplitRequest(0, at=(1,)))
    await shape.refused(SplitRequest(1), InvalidInput, "cannot be cut into 2 parts")


async def test_no_such_segment() -> None:
    shape = Shape(2)
    await shape.refused(SplitRequest(2), NotFound, "no segment 2; open: 0, 1")
    await shape.refused(MergeRequest(0, 2), NotFound, "no segment 2")


async def test_not_neighbours() -> None:
    shape = Shape(3)
    for pair in ((0, 2), (2, 0), (1, 1)):
        error = await shape.refused(MergeRequest(*pair), Conflict, "are not neighbours")
        assert isinstance(error, Conflict) and error.kind == "not-neighbours"


async def test_the_limits_of_the_topic() -> None:
    shape = Shape(2, min_segments=2, max_segments=3)
    await shape.refused(SplitRequest(0, parts=3), Conflict, "would have 4 open segments, and max_segments is 3")
    await shape.refused(MergeRequest(0, 1), Conflict, "has 2 open segments, and min_segments is 2")
    assert len(await shape.do(SplitRequest(0))) == 2


async def test_another_transition_is_waited_for() -> None:
    shape = Shape(2)
    shape.state = rolled(shape.state, 1)
    assert [bounds for _, bounds in await shape.do(SplitRequest(0))] == [(0, 16384), (16384, 32768)]
    assert shape.changes == 2


async def test_one_that_seals_the_very_segment_is_told() -> None:
    shape = Shape()
    shape.state = rolled(shape.state, 0)
    with pytest.raises(SegmentNotOpen, match="it is followed by 1"):
        await shape.do(SplitRequest(0))


async def test_a_topic_that_never_rests() -> None:
    shape = Shape(2)
    shape.before = lambda state: rolled(state, state.open_segments[1].id)
    with pytest.raises(TransitionUnderWay, match="keep changing"):
        await shape.do(SplitRequest(0))
    assert shape.changes == TRIES


async def test_an_owner_that_does_not_answer_may_be_asked_again() -> None:
    """It stops after the transition was recorded: the same again finds it so and goes on."""
    shape = Shape()
    shape.failure = OutcomeUnknown("no answer")
    with pytest.raises(Repeatable, match="no answer"):
        await shape.do(SplitRequest(0))
    assert shape.state.transition is not None
    shape.failure = None
    assert await shape.do(SplitRequest(0)) == [(1, (0, 32768)), (2, (32768, SLOTS))]
    assert len(shape.state.segments) == 3


async def test_a_topic_that_was_deleted_meanwhile() -> None:
    shape = Shape()
    shape.before = lambda state: state.model_copy(update={"deleted": True, "segments": ()})
    with pytest.raises(NotFound) as caught:
        await shape.do(SplitRequest(0))
    assert caught.value.what == "topic"


def rolled(state: TopicState, segment: int) -> TopicState:
    """A transition of another kind under way, if none is."""
    return begin_replacement(state, [segment], brokers_for, "roll", now_us=2) or state
