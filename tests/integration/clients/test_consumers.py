"""Members of stream groups against the broker in memory."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import pytest

from braidmq import AsyncClient, Client, ClientClosed, Conflict, MemberFenced, MemberReplaced, Message, OutgoingMessage
from braidmq.errors import InvalidArgument, TopicNotFound
from braidmq.testing import InMemoryBroker
from tests.support.broker.answer_dropper import answer_dropper

SEGMENTS = 4


@pytest.fixture
def client(broker: InMemoryBroker, topic: str) -> Iterator[Client]:
    with broker.client() as client:
        client.create_topic(topic, segments=SEGMENTS)
        client.group(topic, "g").create(mode="stream", session_seconds=2)
        yield client


def publish(client: Client, topic: str, count: int, begin: int = 0) -> list[str]:
    values = [str(n) for n in range(begin, begin + count)]
    client.publish_many(topic, [OutgoingMessage(value, key=f"k{int(value) % 16}") for value in values])
    return values


def text_of(message: Message) -> str:
    return message.value_text or ""


def seen_of(client: Client, topic: str, **settings: float) -> list[str]:
    return [text_of(message) for message in client.consumer(topic, group="g", idle_seconds=0.5, **settings)]


def test_a_loop_commits_what_is_done(client: Client, topic: str) -> None:
    wanted = publish(client, topic, 500)
    consumer = client.consumer(topic, group="g", idle_seconds=0.5)
    seen = [text_of(message) for message in consumer]
    assert sorted(seen, key=int) == wanted and consumer.fenced == 0
    for key in range(16):  # each key's messages are in order
        of_key = [int(value) for value in seen if int(value) % 16 == key]
        assert of_key == sorted(of_key)
    told = client.group(topic, "g").describe()
    assert told.lag.messages == 0 and told.members == [] and len(told.segments) == SEGMENTS
    with pytest.raises(ClientClosed):
        next(iter(consumer))
    assert seen_of(client, topic) == []


def test_the_message_in_hand_comes_again_unless_it_is_committed(client: Client, topic: str) -> None:
    publish(client, topic, 20)
    first = [text_of(message) for message in islice(client.consumer(topic, group="g"), 8)]
    with client.consumer(topic, group="g", idle_seconds=0.5) as consumer:
        again = next(iter(consumer))
        consumer.commit()
    rest = seen_of(client, topic)
    assert text_of(again) not in rest
    # All but the one that was in hand when the first loop was left.
    assert len({*first, text_of(again), *rest}) == 20 and len(rest) in (11, 12)


def test_by_hand_nothing_is_committed_by_itself(client: Client, topic: str) -> None:
    wanted = publish(client, topic, 40)
    with client.consumer(topic, group="g", commit_seconds=None, idle_seconds=0.5) as consumer:
        assert len(list(consumer)) == 40
    with client.consumer(topic, group="g", commit_seconds=None, idle_seconds=0.5) as consumer:
        assert sorted(map(text_of, consumer), key=int) == wanted
        consumer.commit()
    assert client.group(topic, "g").describe().lag.messages == 0


def test_members_divide_segments_and_hand_them_over(client: Client, topic: str) -> None:
    seen: list[str] = []
    ended = threading.Event()

    def work(member_id: str) -> None:
        for message in client.consumer(topic, group="g", member_id=member_id, idle_seconds=3):
            seen.append(text_of(message))
        ended.set()

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    count, limit = 0, time.monotonic() + 20
    while sorted(len(each.segments) for each in client.group(topic, "g").describe().members) != [2, 2]:
        publish(client, topic, 10, count)
        count += 10
        assert time.monotonic() < limit
    for thread in threads:
        thread.join()
    assert {*seen} == {str(n) for n in range(count)}
    # Segments are handed over without messages coming again.
    assert len(seen) == count


def test_splits_and_merges_keep_the_order_of_keys(client: Client, topic: str) -> None:
    publish(client, topic, 200)
    seen: list[str] = []
    for number, message in enumerate(client.consumer(topic, group="g", prefetch=20, idle_seconds=1)):
        seen.append(text_of(message))
        if number == 50:
            client.split_segment(topic, 0)
            publish(client, topic, 100, 200)
        if number == 150:
            first, second, *_ = sorted(
                (each.range, each.segment) for each in client.topic(topic).segments if each.state == "open"
            )
            client.merge_segments(topic, first[1], second[1])
            publish(client, topic, 100, 300)
    assert sorted(seen, key=int) == [str(n) for n in range(400)]
    for key in range(16):
        of_key = [int(value) for value in seen if int(value) % 16 == key]
        assert of_key == sorted(of_key)


async def test_a_member_that_starts_again_fences_the_one_before(
    broker: InMemoryBroker, client: Client, topic: str
) -> None:
    publish(client, topic, 40)
    async with AsyncClient(broker.url) as other:
        before = other.consumer(topic, group="g", member_id="m", commit_seconds=None)
        assert await before.take() is not None
        after = other.consumer(topic, group="g", member_id="m", commit_seconds=None)
        assert await after.take() is not None
        with pytest.raises(MemberFenced, match="with other members of group 'g'"):
            await before.commit()
        await after.close()
        await before.close()


async def test_lost_answers_lose_nothing(broker: InMemoryBroker, client: Client, topic: str) -> None:
    wanted = publish(client, topic, 300)
    async with answer_dropper(broker.url) as proxy, AsyncClient(proxy.url, direct=False) as other:
        consumer, seen = other.consumer(topic, group="g", commit_seconds=0.02, prefetch=10, idle_seconds=1), list[str]()
        async for message in consumer:
            seen.append(text_of(message))
            if len(seen) % 20 == 0:
                proxy.drop = 1
    assert {*seen} == {*wanted}
    assert client.group(topic, "g").describe().lag.messages == 0


def test_what_is_wrong_is_named(client: Client, topic: str) -> None:
    for wrong in ({"prefetch": 0}, {"commit_seconds": 0.0}, {"idle_seconds": -1.0}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            client.consumer(topic, group="g", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TopicNotFound):
        next(iter(client.consumer("nothing", group="g")))
    client.group(topic, "q").create()
    with pytest.raises(Conflict, match="queue group"):
        next(iter(client.consumer(topic, group="q")))
    with pytest.raises(Conflict, match="stream group"):
        next(iter(client.worker(topic, group="g")))


async def test_it_stays_a_member_while_its_caller_works_longer_than_a_session(
    broker: InMemoryBroker, client: Client, topic: str
) -> None:
    publish(client, topic, 8)
    async with AsyncClient(broker.url) as other, other.consumer(topic, group="g", idle_seconds=0.5) as consumer:
        first = await consumer.take()
        await asyncio.sleep(2.5)
        told = client.group(topic, "g").describe()
        assert [each.member_id for each in told.members] == [consumer.member_id] and first is not None
        assert len([message async for message in consumer]) == 7 and consumer.fenced == 0


def test_of_two_processes_under_one_name_the_older_one_ends(client: Client, topic: str, broker: InMemoryBroker) -> None:
    publish(client, topic, 100)
    with broker.client() as other:
        older = client.consumer(topic, group="g", member_id="m", idle_seconds=20)
        messages = iter(older)
        assert next(messages) is not None
        newer = other.consumer(topic, group="g", member_id="m", idle_seconds=1)
        seen = [text_of(message) for message in newer]
        with pytest.raises(MemberReplaced, match="give each process a member_id of its own"):
            list(messages)
        assert len(set(seen)) == 100 and newer.fenced == 0


async def test_a_join_that_is_under_way_is_followed_by_a_leave(
    broker: InMemoryBroker, client: Client, topic: str
) -> None:
    for delay_seconds in (0.0, 0.0, 0.001, 0.003, 0.003, 0.003, 0.01, 0.02, 0.05):
        async with AsyncClient(broker.url) as own:
            consumer = own.consumer(topic, group="g")
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_seconds):
                    await consumer.take()
            await consumer.close()
    assert client.group(topic, "g").describe().members == []


async def test_a_step_of_a_loop_that_is_given_up_closes_nothing(
    broker: InMemoryBroker, client: Client, topic: str
) -> None:
    async with AsyncClient(broker.url) as own:
        consumer = own.consumer(topic, group="g")
        loop = aiter(consumer)
        for step in (loop.__anext__, consumer.__anext__):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(step(), 0.05)
        publish(client, topic, 2)
        assert {text_of(await anext(loop)), text_of(await anext(consumer))} == {"0", "1"}
        await loop.aclose()
        with pytest.raises(ClientClosed):
            await consumer.take()


async def test_a_loop_that_is_left_closes_its_consumer(broker: InMemoryBroker, client: Client, topic: str) -> None:
    publish(client, topic, 1)
    async with AsyncClient(broker.url) as own:
        async for _ in own.consumer(topic, group="g"):
            break
        async with asyncio.timeout(20):
            while client.group(topic, "g").describe().members:
                await asyncio.sleep(0.01)
