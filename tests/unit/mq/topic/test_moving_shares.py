"""A request whose shares move, are cut again and move again: each message is stored once, and its answer counts all."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from filer.errors import SegmentMoved
from filer.format.requests import Position
from filer.format.schema import MessageSchema
from filer.segment.cut_rows import CutRows
from filer.segment.next_file import Payload
from filer.slots import equal_ranges
from filer.stores.decorators.store_health import StoreHealth
from filer.topic.topic_config import TopicConfig
from mq.topic import topic_publisher
from mq.topic.publish_deadlines import PublishDeadlines
from mq.topic.topic_publisher import TopicPublisher
from tests.support.instant_clock import InstantClock

Round = tuple[int, list[bool]]
"""Into how many segments the keys are cut, and which of them move before they store what they got."""
ROUNDS = st.lists(st.tuples(st.integers(1, 6), st.lists(st.booleans(), min_size=6, max_size=6)), min_size=1, max_size=5)


class Segments:
    """What is stored, and a topic whose segments are others in each round; in the last one none moves."""

    def __init__(self, rounds: list[Round]) -> None:
        self.stored: list[int] = []
        self._rounds = [*rounds, (3, [False] * 6)]
        self._next_id = 0
        self._appenders: list[Any] = []
        self.publisher: TopicPublisher | None = None

    def state(self) -> Any:
        """The topic in the next round."""
        count, moving = self._rounds.pop(0)
        segments = []
        for (start, _), moves in zip(equal_ranges(count), moving, strict=False):
            segments.append(SimpleNamespace(id=self._next_id, start_slot=start, owner="b", moves=moves))
            self._next_id += 1
        return SimpleNamespace(
            topic="t",
            version=self._next_id,
            config=TopicConfig(),
            group=None,
            is_grouped=False,
            deleted=False,
            transition=None,
            open_segments=segments,
        )

    def appender_of(self, segment: Any) -> Any:
        """The way into a segment."""

        def append(payload: Payload, size_bytes: int, request: Any = None, *, replicated: bool = False) -> Any:
            outcome: asyncio.Future[list[Position]] = asyncio.get_running_loop().create_future()
            rows = payload.batch() if isinstance(payload, CutRows) else cast(pa.RecordBatch, payload)
            if segment.moves:
                outcome.set_exception(SegmentMoved())
            else:
                self.stored += [int(value) for value in rows["value"].to_pylist()]
                outcome.set_result([Position(segment.id, 0, rows.num_rows)])
            return outcome

        appender = SimpleNamespace(is_open=True, is_sealing=False, is_sealed=False, append=append)
        self._appenders.append(appender)
        return appender

    def seal(self) -> None:
        """All segments of this round are sealed."""
        for appender in self._appenders:
            appender.is_open, appender.is_sealed = False, True

    async def wait_for_newer(self, _: float) -> None:
        """The next round comes."""
        assert self.publisher is not None
        self.publisher.apply(self.state())


async def publish(segments: Segments, rows: pa.RecordBatch) -> tuple[list[int], list[Position]]:
    """What was stored, and what was answered."""
    clock = InstantClock()
    publisher = segments.publisher = TopicPublisher(
        segments.state(),
        broker="b",
        clock=clock,
        clustered=True,
        appender_of=segments.appender_of,
        watch=cast(Any, segments),
        deadlines=PublishDeadlines(1e9, StoreHealth(clock), on_expired=lambda: None),
        fault_of=lambda _: None,
        check_end=cast(Any, None),
        take_up=cast(Any, None),
    )
    publisher.reroute()
    return segments.stored, await publisher.publish_rows(rows, 1000)


def rows_of(count: int) -> pa.RecordBatch:
    """Messages of 13 keys, whose values are numbers."""
    columns = [{"key": b"k%d" % (n % 13), "value": b"%d" % n} for n in range(count)]
    return pa.RecordBatch.from_pylist(columns, schema=MessageSchema.of().rows)


@given(ROUNDS, st.integers(1, 40))
# One share moves; it is cut into two, and both move.
@example([(1, [True] * 6), (2, [True] * 6)], 5)
def test_each_message_is_stored_once_and_counted(rounds: list[Round], count: int) -> None:
    stored, positions = asyncio.run(publish(Segments(rounds), rows_of(count)))
    assert sorted(stored) == list(range(count))
    assert sum(position.count for position in positions) == count


async def test_a_topic_that_is_split_while_many_messages_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cuts them. The segments by which it did so are sealed meanwhile, and take none of them."""
    segments, cuts = Segments([(1, [False] * 6), (2, [False] * 6)]), 0

    async def cut_meanwhile(cut: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal cuts
        cuts += 1
        if cuts == 1:
            segments.seal()
            await segments.wait_for_newer(0)
        return cut(*arguments)

    monkeypatch.setattr(topic_publisher, "MOST_CUT_AT_ONCE", 39)
    monkeypatch.setattr(asyncio, "to_thread", cut_meanwhile)
    stored, positions = await publish(segments, rows_of(40))
    assert cuts == 2
    assert sorted(stored) == list(range(40))
    assert [position.segment for position in positions] == [1, 2]
