"""What the owner of a segment tells of the traced requests that it stores."""

from collections.abc import AsyncIterator

import pytest
from opentelemetry.trace import StatusCode

from filer import tracing
from filer.clock import settle
from filer.segment.segment_log import SegmentRef
from filer.segment.writer.segment_writer import MOST_LINKS
from filer.stores.decorators.faults import FaultKind
from filer.tracing import NO_SPAN
from tests.support.segment.segment_world import FakeFollowers, SegmentWorld
from tests.support.traces.recorded_traces import (
    TRACEPARENT,
    RecordedTraces,
    links_of,
    parent_of,
    span_id_of,
    trace_id_of,
)

REF = SegmentRef("events", 0)


@pytest.fixture
async def world() -> AsyncIterator[SegmentWorld]:
    made = SegmentWorld(REF)
    made.open_writer()
    yield made
    await made.close()


@pytest.fixture
async def recorded() -> AsyncIterator[RecordedTraces]:
    traces = RecordedTraces()
    yield traces
    # However the writer ended.
    assert traces.open == []


def append(world: SegmentWorld, recorded: RecordedTraces, value: bytes, *, traceparent: str = "") -> "tracing.Span":
    """Publish in a trace of its own, or that one."""
    span = recorded.tracer_of("a").begin("publish", "events", {"traceparent": traceparent} if traceparent else {})
    with tracing.within(span):
        span.end_with(world.append(value))
    return span


@pytest.mark.parametrize(
    ("faults", "attempts"),
    [([], 1), ([FaultKind.FAIL_BEFORE] * 2, 3), ([FaultKind.LOSE_ANSWER], 2)],
    ids=["at once", "fails twice", "answer lost"],
)
async def test_a_put_tells_its_key_and_its_attempts(
    world: SegmentWorld, recorded: RecordedTraces, faults: list[FaultKind], attempts: int
) -> None:
    world.faults.add("create", *faults)
    append(world, recorded, b"x", traceparent=TRACEPARENT)
    await world.pass_seconds(30)
    assert recorded.tree() == ["client > publish@a", "publish@a > put@a", "publish@a > queue@a"]
    (put,) = recorded.spans("put")
    told = put.attributes or {}
    assert told["braidmq.store.key"] == "topics/events/segments/segment=0/00000000000000000000.parquet"
    assert told["braidmq.put.attempts"] == attempts
    assert [event.name for event in put.events] == ["try failed"] * (attempts - 1)
    assert put.status.status_code is StatusCode.UNSET


async def test_a_put_points_to_all_requests_in_its_file_and_they_to_it(
    world: SegmentWorld, recorded: RecordedTraces
) -> None:
    world.append(b"first, not traced")
    await settle()
    recorded.clear()
    # These wait for the next file.
    spans = [append(world, recorded, b"%d" % n) for n in range(3)]
    world.append(b"not traced")
    assert all(span.is_recording for span in spans)
    await world.pass_seconds(1)
    await settle()
    puts = recorded.spans("put")
    assert len(puts) == 1
    queues = recorded.spans("queue")
    assert len({trace_id_of(span) for span in queues}) == 3
    assert trace_id_of(puts[0]) == trace_id_of(queues[0]) and parent_of(puts[0]) == parent_of(queues[0])
    assert list(links_of(puts[0])) == [span_id_of(queue) for queue in queues[1:]]
    assert [list(links_of(queue)) for queue in queues] == [[], [span_id_of(puts[0])], [span_id_of(puts[0])]]
    assert (puts[0].attributes or {})["braidmq.requests"] >= 4


async def test_a_put_points_to_so_many_requests_at_most(world: SegmentWorld, recorded: RecordedTraces) -> None:
    for n in range(MOST_LINKS + 40):
        append(world, recorded, b"%d" % n)
    await world.pass_seconds(1)
    await settle()
    assert max(len(links_of(put)) for put in recorded.spans("put")) == MOST_LINKS


async def test_a_put_for_requests_that_nobody_traces_has_no_span(world: SegmentWorld, recorded: RecordedTraces) -> None:
    with tracing.within(NO_SPAN):
        world.append(b"x")
    await world.pass_seconds(1)
    assert recorded.spans() == []


async def test_steps_end_with_the_error_when_the_owner_stops(world: SegmentWorld, recorded: RecordedTraces) -> None:
    world.faults.add("create", *[FaultKind.FAIL_BEFORE] * 100)
    first = append(world, recorded, b"in flight")
    await settle()
    second = append(world, recorded, b"waits")
    assert len(recorded.open) >= 4 and first.is_recording and second.is_recording
    await world.close()
    await settle()
    assert recorded.open == []
    failed = [span for span in recorded.spans() if span.status.status_code is StatusCode.ERROR]
    assert sorted(span.name for span in failed) == ["publish events", "publish events", "put events", "queue events"]


async def test_a_put_after_the_answer_still_belongs_to_the_trace(recorded: RecordedTraces) -> None:
    followers = FakeFollowers()
    world = SegmentWorld(REF, followers=followers)
    world.open_writer(flush_interval_seconds=1.0)
    append(world, recorded, b"x", traceparent=TRACEPARENT)
    followers.hold(1)
    await settle()
    await world.pass_seconds(30)
    assert "publish@a > put@a" in recorded.tree()
    await world.close()
