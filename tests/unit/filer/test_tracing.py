"""Spans as the code tells of them: of requests that are not traced, and of several requests at once."""

import asyncio

from filer import tracing
from filer.tracing import NO_SPAN, LeftOut
from tests.support.traces.recorded_traces import TRACEPARENT, RecordedTraces, span_id_of


def begun(recorded: RecordedTraces, step: str = "publish") -> tracing.Span:
    return recorded.tracer_of("a").begin(step, "birds", {"traceparent": TRACEPARENT})


def test_without_a_trace_every_step_is_none_at_all() -> None:
    assert tracing.current() is NO_SPAN
    with NO_SPAN.child("read") as span:
        span.note(messages=1)
        span.event("moved")
        assert span is NO_SPAN and tracing.current() is NO_SPAN
        assert span.follow("put", links=[span]) is NO_SPAN
    assert not span.is_recording and span.trace_id is None and not span.each() and not span.carriers()


def test_a_span_is_the_current_one_within_its_block() -> None:
    recorded = RecordedTraces()
    with begun(recorded) as span:
        assert tracing.current() is span
        with span.child("read") as child:
            assert tracing.current() is child
            with tracing.within(NO_SPAN):
                assert tracing.current() is NO_SPAN
        assert tracing.current() is span
    assert tracing.current() is NO_SPAN
    assert recorded.tree() == ["client > publish@a", "publish@a > read@a"]


def test_what_is_left_out_tells_the_step_around_it_nothing() -> None:
    recorded = RecordedTraces()
    with begun(recorded) as span, LeftOut():
        assert tracing.current() is not span
        tracing.current().note(messages=1)
    assert "messaging.batch.message_count" not in (recorded.spans()[0].attributes or {})


def test_steps_within_one_that_is_left_out_are_entered_and_left() -> None:
    recorded = RecordedTraces()
    with begun(recorded) as span:
        with LeftOut() as outer, outer.child("scan") as inner, inner.follow("put") as later:
            assert tracing.current() is later
        assert tracing.current() is span


async def test_tasks_share_a_step_that_is_left_out() -> None:
    outer = LeftOut()

    async def step() -> None:
        with outer.child("read") as own:
            await asyncio.sleep(0)
            assert tracing.current() is own

    await asyncio.gather(step(), step())


def test_steps_of_several_requests_are_told_to_each() -> None:
    recorded = RecordedTraces()
    first, second = begun(recorded), begun(recorded)
    assert tracing.together([NO_SPAN]) is NO_SPAN
    assert tracing.together([first, NO_SPAN]) is first
    both = tracing.together([first, NO_SPAN, second])
    assert list(both.each()) == [first, second] and len(both.carriers()) == 2
    with both.child("queue") as queue:
        assert tracing.current() is queue
        queue.note(requests=2)
    later = queue.follow("put", links=[first])
    later.link(second)
    later.fail("broken")
    later.end()
    both.event("moved")
    both.end()
    assert [span.name for span in recorded.spans()] == ["queue birds"] * 2 + ["put birds"] * 2 + ["publish birds"] * 2
    assert recorded.open == []
    assert {len(span.links) for span in recorded.spans("put")} == {2}
    assert [event.name for span in recorded.spans("publish") for event in span.events] == ["moved", "moved"]


async def test_steps_of_several_requests_end_with_a_future() -> None:
    recorded = RecordedTraces()
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    tracing.together([begun(recorded), begun(recorded)]).end_with(outcome)
    assert len(recorded.open) == 2
    outcome.set_result(None)
    await asyncio.sleep(0)
    assert recorded.open == [] and len({span_id_of(span) for span in recorded.spans()}) == 2
