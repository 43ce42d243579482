"""A publish with a sequence is repeated until its outcome is known; if it stays unknown, the error says so."""

import httpx
import pytest

from braidmq import (
    AsyncClient,
    BodyTooLarge,
    FrontStoreFull,
    OutcomeUnknown,
    PositionRange,
    PublishIncomplete,
    SequenceExpired,
    TopicNotFound,
)
from tests.support.broker.fake_broker import FakeBroker, Fault, broken, problem
from tests.support.instant_clock import InstantClock


@pytest.mark.parametrize(
    "fault",
    [
        Fault(broken),
        Fault(broken, after=True),
        Fault(lambda request: httpx.ReadTimeout("", request=request), after=True),
        Fault(lambda request: httpx.WriteError("", request=request)),
        Fault(response=problem(503, "store-unavailable", retryable=True, retry_after=1), after=True),
        Fault(response=problem(503, "publish-incomplete", retryable=True, positions=[]), after=True),
        Fault(response=problem(503, "segment-moved", retryable=True, retry_after=1)),
        Fault(response=problem(500, "internal")),
        Fault(response=httpx.Response(502, text="<html>")),
        Fault(response=httpx.Response(504, text="<html>"), after=True),
    ],
)
async def test_what_may_be_stored_is_repeated_and_stored_once(
    client: AsyncClient, broker: FakeBroker, fault: Fault
) -> None:
    broker.add_topic("t")
    broker.faults.extend([fault, fault])
    await client.publish("t", "v", key="k")
    assert broker.values("t") == [b"v"]
    assert len(broker.requests) == 3
    assert len({bytes(request.url.query) for request in broker.requests}) == 1
    assert len({request.content for request in broker.requests}) == 1


async def test_calls_at_once_do_not_share_a_producer_and_calls_in_turn_do(
    client: AsyncClient, broker: FakeBroker
) -> None:
    broker.add_topic("t")
    for n in range(3):
        await client.publish("t", str(n))
    assert [sequence for _, sequence in broker.topics["t"].answered] == [1, 2, 3]
    assert len({producer for producer, _ in broker.topics["t"].answered}) == 1


async def test_a_refusal_of_the_first_try_is_raised_as_it_is(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(response=problem(409, "sequence-expired")))
    with pytest.raises(SequenceExpired) as caught:
        await client.publish("t", "v")
    assert not caught.value.retryable
    with pytest.raises(TopicNotFound):
        await client.publish("missing", "v")


@pytest.mark.parametrize(
    "refusal",
    [problem(409, "sequence-expired"), problem(404, "topic-not-found"), problem(413, "body-too-large")],
)
async def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(
    client: AsyncClient, broker: FakeBroker, refusal: httpx.Response
) -> None:
    broker.add_topic("t")
    broker.faults.extend([Fault(broken, after=True), Fault(response=refusal)])
    with pytest.raises(OutcomeUnknown, match="an earlier try may have stored the messages") as caught:
        await client.publish("t", "v")
    assert not caught.value.retryable
    assert broker.values("t") == [b"v"]


async def test_a_full_broker_is_waited_for_until_the_delivery_times_out(
    client: AsyncClient, broker: FakeBroker, clock: InstantClock
) -> None:
    broker.add_topic("t")
    broker.faults.extend([Fault(response=problem(429, "front-store-full", retryable=True, retry_after=7))] * 1000)
    with pytest.raises(FrontStoreFull) as caught:
        await client.publish("t", "v")
    assert caught.value.retryable
    assert clock.naps_seconds == [7.0] * 17
    assert broker.values("t") == []


async def test_what_stays_incomplete_says_what_is_stored(client: AsyncClient, broker: FakeBroker) -> None:
    positions = [{"segment": 1, "offset": 2, "count": 3}]
    fault = Fault(response=problem(503, "publish-incomplete", retryable=True, positions=positions))
    broker.add_topic("t")
    broker.faults.extend([fault] * 1000)
    with pytest.raises(PublishIncomplete) as caught:
        await client.publish("t", "v")
    assert caught.value.positions == (PositionRange(1, 2, 3),)
    assert not caught.value.retryable


async def test_a_producer_goes_on_after_a_batch_that_was_refused(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.extend(
        [Fault(broken, after=True), Fault(broken), None, Fault(response=problem(413, "body-too-large"))]
    )
    async with client.producer("t", linger_seconds=0) as producer:
        first = await producer.send("a", key="k")
        await producer.flush()
        second = await producer.send("b", key="k")
        with pytest.raises(BodyTooLarge):
            await second
        third = await producer.send("c", key="k")
    assert first.done() and third.done()
    assert broker.values("t") == [b"a", b"c"]


async def test_a_silent_broker_is_not_waited_for_longer_than_a_while(
    client: AsyncClient, broker: FakeBroker, clock: InstantClock
) -> None:
    broker.add_topic("t")
    silence = Fault(lambda request: httpx.ReadTimeout("", request=request))
    broker.faults.extend([silence] * 1000)
    with pytest.raises(OutcomeUnknown):
        await client.publish("t", "v")
    waits = [request.extensions["timeout"]["read"] for request in broker.requests]
    assert waits[0] == 10.0
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] < 10.0
