import httpx
import pytest

from braidmq import AsyncClient, InvalidName, NotFound, TopicNotFound
from tests.support.fake_broker import FakeBroker, Fault, broken


async def test_a_topic_is_created_described_listed_and_deleted(client: AsyncClient, broker: FakeBroker) -> None:
    created = await client.create_topic("flights", segments=4, retention={"seconds": 60})
    assert created.config == {"segments": 4, "retention": {"seconds": 60}}
    assert [each.range for each in created.segments] == [
        (0, 16384), (16384, 32768), (32768, 49152), (49152, 65536),
    ]  # fmt: skip
    assert await client.topic("flights") == created
    await client.delete_topic("flights")
    with pytest.raises(TopicNotFound):
        await client.topic("flights")


async def test_topics_are_listed_over_several_pages(client: AsyncClient, broker: FakeBroker) -> None:
    for number in range(5):
        broker.add_topic(f"t{number}", segments=number + 1)
    listed = [(each.topic, each.open_segments) async for each in client.topics()]
    assert listed == [("t0", 1), ("t1", 2), ("t2", 3), ("t3", 4), ("t4", 5)]


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
async def test_names_that_are_none_are_not_sent(client: AsyncClient, broker: FakeBroker, name: str) -> None:
    for call in (client.topic(name), client.create_topic(name), client.publish(name, "v"), client.route(name)):
        with pytest.raises(InvalidName, match="a name is 1 to 200"):
            await call
    with pytest.raises(InvalidName):
        client.browse(name)
    assert broker.requests == []
