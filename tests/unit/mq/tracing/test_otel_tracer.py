"""Which requests are traced, and how much their spans may be."""

import asyncio
from itertools import pairwise

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from filer.errors import OutcomeUnknown
from filer.tracing import NO_SPAN, LeftOut
from mq.tracing.attributes import NAMES, of_facts, of_step
from mq.tracing.chosen_ids import ChosenIds
from mq.tracing.otel_tracer import MOST_SPANS, OtelTracer
from mq.tracing.tracer import MOST_TOGETHER
from tests.support.traces.recorded_traces import (
    TRACE_ID,
    TRACEPARENT,
    RecordedTraces,
    links_of,
    parent_of,
    trace_id_of,
)

SAMPLED = {"traceparent": TRACEPARENT}
NOT_SAMPLED = {"traceparent": TRACEPARENT.removesuffix("1") + "0"}
BROKEN = {"traceparent": "00-nonsense-01"}


def test_the_names_of_spans_and_attributes_follow_the_conventions() -> None:
    recorded = RecordedTraces()
    with recorded.tracer_of("a").begin("publish", "birds", SAMPLED) as span:
        span.note(messages=3, segment=7)
    (ended,) = recorded.spans()
    assert (ended.name, ended.kind) == ("publish birds", SpanKind.SERVER)
    assert ended.attributes == {
        "messaging.system": "braidmq",
        "messaging.destination.name": "birds",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 3,
        "messaging.destination.partition.id": "7",
    }


def test_every_fact_has_a_name_of_its_own() -> None:
    assert len(set(NAMES.values())) == len(NAMES)
    assert not set(NAMES.values()) & set(of_step("publish", "birds"))
    with pytest.raises(KeyError):
        of_facts({"colour": "red"})


@pytest.mark.parametrize(
    ("carrier", "is_traced"),
    [(SAMPLED, True), (NOT_SAMPLED, False), (BROKEN, False), ({}, False)],
    ids=["sampled", "not sampled", "broken", "none"],
)
def test_a_client_decides_for_its_own_trace(carrier: dict[str, str], is_traced: bool) -> None:
    recorded = RecordedTraces(ParentBased(ALWAYS_OFF))
    with recorded.tracer_of("a").begin("receive", "birds", carrier) as span:
        assert span.is_recording is is_traced
        assert span.trace_id == (TRACE_ID if is_traced else None)
    assert recorded.tree() == (["client > receive@a"] if is_traced else [])


@pytest.mark.parametrize("carrier", [NOT_SAMPLED, BROKEN, {}], ids=["not sampled", "broken", "none"])
def test_a_broker_begins_no_trace_for_another_broker(carrier: dict[str, str]) -> None:
    recorded = RecordedTraces()
    assert recorded.tracer_of("a").resume("append", "birds", [carrier]) is NO_SPAN
    assert recorded.open == []


def test_a_call_goes_on_with_so_many_traces() -> None:
    recorded = RecordedTraces()
    span = recorded.tracer_of("a").resume("append", "birds", [SAMPLED] * (MOST_TOGETHER + 5))
    assert len(span.each()) == MOST_TOGETHER
    span.end()


def test_what_goes_to_another_broker_names_this_span() -> None:
    recorded = RecordedTraces()
    tracer = recorded.tracer_of("a")
    carried = {**SAMPLED, "tracestate": "vendor=7"}
    with tracer.begin("publish", "birds", carried) as span, span.child("forward", kind="client") as forward:
        (carrier,) = forward.carriers()
        assert carrier["tracestate"] == "vendor=7"
        with recorded.tracer_of("b").resume("append", "birds", [carrier]):
            pass
    assert forward.carriers() == ()
    assert recorded.tree() == ["client > publish@a", "forward@a > append@b", "publish@a > forward@a"]


def share_tracer(ratio: float, exporter: InMemorySpanExporter) -> OtelTracer:
    chosen = ChosenIds(ratio)
    sampler = ParentBased(TraceIdRatioBased(ratio))
    provider = TracerProvider(sampler=sampler, id_generator=chosen, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def close() -> None:
        provider.shutdown()

    return OtelTracer(provider, close, chosen)


@pytest.mark.parametrize("ratio", [0.0, 1e-9, 0.25, 1.0])
def test_what_is_chosen_is_what_the_sampler_of_the_sdk_chooses(ratio: float) -> None:
    exporter, chosen = InMemorySpanExporter(), 0
    tracer = share_tracer(ratio, exporter)
    for _ in range(400):
        if not tracer.passes_over():
            chosen += 1
            tracer.begin("publish", "birds", {}).end()
    assert len({trace_id_of(span) for span in exporter.get_finished_spans()}) == chosen
    assert 400 * ratio * 0.5 - 1 < chosen <= 400 * ratio * 1.5
    # A client that traces has decided, whatever the share is.
    with tracer.begin("publish", "birds", SAMPLED) as span:
        assert span.trace_id == TRACE_ID


def test_of_clients_whose_trace_cannot_be_read_the_same_share_is_chosen() -> None:
    tracer = share_tracer(0.25, InMemorySpanExporter())
    assert 50 < sum(tracer.begin("publish", "birds", BROKEN).is_recording for _ in range(400)) < 150
    # Nobody asks twice about a client that gives something else.
    assert tracer.begin("publish", "birds", {"tracestate": "vendor=7"}).is_recording


def test_whether_a_request_is_chosen_says_nothing_about_the_next() -> None:
    chosen = ChosenIds(0.25)
    picks = [not chosen.passes_over() for _ in range(8000)]
    after_a_chosen_one = [later for before, later in pairwise(picks) if before]
    assert 0.2 < sum(after_a_chosen_one) / len(after_a_chosen_one) < 0.3
    assert 0.22 < sum(picks) / len(picks) < 0.28


def test_a_request_makes_so_many_spans_and_tells_how_many_it_left_out() -> None:
    recorded = RecordedTraces()
    with recorded.tracer_of("a").begin("receive", "birds", SAMPLED) as span:
        for _ in range(MOST_SPANS + 9):
            with span.child("read") as child:
                child.note(messages=1)
        assert isinstance(child, LeftOut) and isinstance(child.child("scan"), LeftOut)
    assert len(recorded.spans("read")) == MOST_SPANS - 1
    (root,) = recorded.spans("receive")
    assert (root.attributes or {})["braidmq.spans_left_out"] == 10


def test_nothing_is_added_to_a_step_that_is_over_except_what_followed_it() -> None:
    recorded = RecordedTraces()
    span = recorded.tracer_of("a").begin("publish", "birds", SAMPLED)
    queue = span.child("queue")
    queue.end()
    span.end()
    # A task that outlives its request.
    assert span.child("read") is NO_SPAN and span.trace_id is None
    span.note(messages=1)
    span.event("moved")
    span.fail("broken")
    span.end(ValueError("too late"))
    other = recorded.tracer_of("a").begin("publish", "birds", {})
    put = queue.follow("put", kind="client", links=[other])
    other.link(put)
    put.end()
    other.end()
    put_span, other_span = recorded.spans("put")[0], recorded.spans("publish")[1]
    assert recorded.tree() == ["client > publish@a", "publish@a > put@a", "publish@a > queue@a"]
    assert links_of(put_span) == [f"{other_span.context.span_id:016x}"]
    assert links_of(other_span) == [f"{put_span.context.span_id:016x}"]
    assert parent_of(other_span) == "none"
    assert all(each.status.status_code is StatusCode.UNSET for each in recorded.spans())


def test_an_error_that_leaves_a_block_is_that_of_its_step() -> None:
    recorded = RecordedTraces()
    with pytest.raises(OutcomeUnknown), recorded.tracer_of("a").begin("publish", "birds", SAMPLED) as span:
        span.child("queue").end()
        raise OutcomeUnknown("the store is away" + "!" * 10_000)
    root = recorded.spans("publish")[0]
    assert root.status.status_code is StatusCode.ERROR and len(root.status.description or "") == 500
    assert (root.attributes or {})["error.type"] == "OutcomeUnknown"
    assert recorded.spans("queue")[0].status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(("how", "kind"), [("result", None), ("error", "ValueError"), ("cancel", "CancelledError")])
async def test_a_step_ends_with_its_future(how: str, kind: str | None) -> None:
    recorded = RecordedTraces()
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    recorded.tracer_of("a").begin("publish", "birds", SAMPLED).end_with(outcome)
    if how == "result":
        outcome.set_result(None)
    elif how == "error":
        outcome.set_exception(ValueError("no"))
    else:
        outcome.cancel()
    await asyncio.sleep(0)
    (span,) = recorded.spans()
    assert (span.attributes or {}).get("error.type") == kind
