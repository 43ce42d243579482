from typing import Any

import httpx
import orjson
import pytest

from braidmq import AsyncClient, InvalidName, NotFound, TopicNotFound
from tests.support.broker.fake_broker import FakeBroker, Fault, broken


async def test_a_topic_is_created_described_listed_and_deleted(client: AsyncClient, broker: FakeBroker) -> None:
    created = await client.create_topic("flights", segments=4, retention={"seconds": 60})
    assert created.config == {"segments": 4, "retention": {"seconds": 60}}
    assert [each.range for each in created.segments] == [
        (0, 16384), (16384, 32768), (32768, 49152), (49152, 65536),
    ]  # fmt: skip
    assert created.created
    assert await client.topic("flights") == created.model_copy(update={"created": False})
    await client.delete_topic("flights")
    with pytest.raises(TopicNotFound):
        await client.topic("flights")


async def test_topics_are_listed_over_several_pages(client: AsyncClient, broker: FakeBroker) -> None:
    for number in range(5):
        broker.add_topic(f"t{number}", segments=number + 1)
    listed = [(each.topic, each.open_segments) async for each in client.topics()]
    assert listed == [("t0", 1), ("t1", 2), ("t2", 3), ("t3", 4), ("t4", 5)]


async def test_the_brokers_own_topics_are_listed_on_request(client: AsyncClient, broker: FakeBroker) -> None:
    for name in ("__groups", "__other", "a", "b"):
        broker.add_topic(name)
    assert [each.topic async for each in client.topics()] == ["a", "b"]
    assert [each.topic async for each in client.topics(internal=True)] == ["__groups", "__other", "a", "b"]


async def test_a_delete_whose_answer_was_lost_has_worked(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(broken, after=True))
    await client.delete_topic("t")
    with pytest.raises(TopicNotFound):
        await client.delete_topic("t")


async def test_a_drain_is_asked_for_again_where_the_answer_was_lost(client: AsyncClient, broker: FakeBroker) -> None:
    broker.faults.append(Fault(broken))
    broker.faults.append(Fault(response=httpx.Response(202, json={"broker": "b.1", "segments": 3})))
    drain = await client.drain_broker("b.1")
    assert (drain.broker, drain.segments) == ("b.1", 3)


async def test_a_broker_that_is_not_there_cannot_be_drained(client: AsyncClient, broker: FakeBroker) -> None:
    document = {"type": "urn:braidmq:broker-not-found", "title": "t", "status": 404, "detail": "there is no broker x"}
    broker.faults.append(Fault(response=httpx.Response(404, json=document)))
    with pytest.raises(NotFound, match="there is no broker x"):
        await client.drain_broker("x")


async def test_a_drain_is_taken_back(client: AsyncClient, broker: FakeBroker) -> None:
    broker.faults.append(Fault(broken))
    broker.faults.append(Fault(response=httpx.Response(200, json={"broker": "b.1", "segments": 0})))
    assert (await client.undrain_broker("b.1")).segments == 0
    assert [request.method for request in broker.requests] == ["DELETE", "DELETE"]
    assert broker.requests[-1].url.path == "/v1/cluster/brokers/b.1/drain"


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 201, "größe", "a b", "a?b"])
async def test_invalid_names_are_not_sent(client: AsyncClient, broker: FakeBroker, name: str) -> None:
    for call in (client.topic(name), client.create_topic(name), client.publish(name, "v"), client.route(name)):
        with pytest.raises(InvalidName, match="a name has 1 to 200"):
            await call
    with pytest.raises(InvalidName):
        client.browse(name)
    assert broker.requests == []


def split_or_merged(*segments: dict[str, object]) -> Fault:
    return Fault(response=httpx.Response(200, json={"topic": "t", "version": 3, "segments": list(segments)}))


@pytest.mark.parametrize(
    ("arguments", "body"), [({}, {}), ({"parts": 3}, {"parts": 3}), ({"at": (10, 20)}, {"at": [10, 20]})]
)
async def test_a_split_is_asked_for_again_where_the_answer_was_lost(
    client: AsyncClient, broker: FakeBroker, arguments: dict[str, Any], body: dict[str, Any]
) -> None:
    broker.faults.append(Fault(broken))
    broker.faults.append(split_or_merged({"segment": 1, "range": [0, 10], "state": "open", "predecessors": [0]}))
    (opened,) = await client.split_segment("t", 0, **arguments)
    assert (opened.segment, opened.range, opened.predecessors) == (1, (0, 10), (0,))
    assert [request.method for request in broker.requests] == ["POST", "POST"]
    assert broker.requests[-1].url.path == "/v1/topics/t/segments/0/split"
    assert orjson.loads(broker.requests[-1].content) == body


async def test_a_merge(client: AsyncClient, broker: FakeBroker) -> None:
    broker.faults.append(split_or_merged({"segment": 2, "range": [0, 65536], "state": "open", "predecessors": [0, 1]}))
    assert (await client.merge_segments("t", 0, 1)).predecessors == (0, 1)
    assert broker.requests[-1].url.path == "/v1/topics/t/segments/0/merge"
    assert orjson.loads(broker.requests[-1].content) == {"with": 1}


async def test_history_comes_over_several_pages(client: AsyncClient, broker: FakeBroker) -> None:
    life = {
        "range": [0, 65536], "state": "removed", "reason": "create", "opened": "2026-11-21T09:51:00Z",
        "sealed": "2026-11-21T09:52:00Z", "messages": 6, "messages_per_second": 0.1,
    }  # fmt: skip
    for segment, following in ((0, 0), (1, None)):
        page = {"topic": "t", "segments": [{"segment": segment, **life}], "next": following}
        broker.faults.append(Fault(response=httpx.Response(200, json=page)))
    lives = [each async for each in client.history("t")]
    assert [(each.segment, each.state, each.messages_per_second, each.bytes) for each in lives] == [
        (0, "removed", 0.1, None), (1, "removed", 0.1, None),
    ]  # fmt: skip
    assert [request.url.params.get("after") for request in broker.requests] == [None, "0"]
