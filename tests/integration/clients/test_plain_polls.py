"""A blocking subscriber asks the broker from its own thread, and falls back on the client's loop for all else."""

import asyncio
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from braidmq import Client, ClientClosed, Message, TopicNotFound
from braidmq.blocking import Messages
from braidmq.read import plain_polls
from braidmq.testing import InMemoryBroker
from braidmq.transport.plain_connection import NotPlain, PlainAnswer, PlainConnection
from tests.support.broker.answer_dropper import answer_dropper


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each poll on a plain connection had an answer."""
    tries: list[bool] = []
    get = PlainConnection.get

    def noted(*arguments: Any, **named: Any) -> PlainAnswer:
        try:
            answer = get(*arguments, **named)
        except NotPlain:
            tries.append(False)
            raise
        tries.append(True)
        return answer

    monkeypatch.setattr(PlainConnection, "get", noted)
    return tries


def _sent_while_read(client: Client, topic: str, count: int) -> list[Message]:
    """Messages that are published one by one, each once the one before has come."""
    client.create_topic(topic)
    client.publish(topic, "0", key="0")
    read: list[Message] = []
    for message in client.subscribe(topic, from_="earliest"):
        read.append(message)
        if len(read) == count:
            break
        client.publish(topic, str(len(read)), key=str(len(read)), headers={"h": b"1"})
    return read


def test_new_messages_come_by_polls(broker: InMemoryBroker, topic: str, polls: list[bool]) -> None:
    with Client(broker.url) as client:
        read = _sent_while_read(client, topic, 20)
        assert [message.value for message in read] == [b"%d" % n for n in range(20)]
        assert polls == [True] * 19, "the first page makes a marker of where it starts, by way of the loop"
        assert {message.id: message for message in client.browse(topic)} == {message.id: message for message in read}
        for number in (0, 7, 18):
            following = client.subscribe(topic, marker=read[number].marker)
            assert next(following).id == read[number + 1].id
            assert following.marker == read[number + 1].marker


async def test_lost_answers_lose_no_message_and_double_none(
    broker: InMemoryBroker, topic: str, polls: list[bool]
) -> None:
    async with answer_dropper(broker.url) as proxy:

        def read() -> list[bytes | None]:
            with Client(broker.url) as publisher, Client(proxy.url, direct=False) as client:
                publisher.create_topic(topic)
                publisher.publish(topic, "0")
                values = []
                for message in client.subscribe(topic, from_="earliest"):
                    values.append(message.value)
                    if len(values) == 20:
                        break
                    proxy.drop = len(values) % 3
                    publisher.publish(topic, str(len(values)))
                return values

        assert await asyncio.to_thread(read) == [b"%d" % n for n in range(20)]
    assert proxy.dropped and False in polls and True in polls


def test_what_is_refused_is_told_as_by_the_loop(broker: InMemoryBroker, topic: str, polls: list[bool]) -> None:
    with Client(broker.url) as client:
        client.create_topic(topic)
        client.publish(topic, "0")
        subscription = client.subscribe(topic, from_="earliest")
        assert next(subscription).value == b"0"
        client.delete_topic(topic)
        with pytest.raises(TopicNotFound):
            next(subscription)
    assert polls == [False]


def test_closing_a_client_ends_polls_of_other_threads(broker: InMemoryBroker, topic: str) -> None:
    ended: list[BaseException] = []
    client = Client(broker.url)
    client.create_topic(topic)
    client.publish(topic, "0")
    subscription = client.subscribe(topic, from_="earliest")
    assert next(subscription).value == b"0"

    def read() -> None:
        with pytest.raises(ClientClosed) as caught:
            next(subscription)
        ended.append(caught.value)

    thread = threading.Thread(target=read)
    thread.start()
    while not client._polls._used:
        pass
    client.close()
    thread.join(20)
    assert not thread.is_alive() and len(ended) == 1


def test_a_broker_that_answers_at_once_without_messages_is_not_asked_in_a_busy_loop(
    broker: InMemoryBroker, topic: str, polls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that drains does. The loop knows how to pause."""
    with Client(broker.url) as client:
        client.create_topic(topic)
        client.publish(topic, "0")
        subscription = client.subscribe(topic, from_="earliest")
        assert next(subscription).value == b"0"
        monkeypatch.setattr("braidmq.read.reader.WAIT_SECONDS", 0)
        threading.Timer(0.1, client.publish, (topic, "1")).start()
        assert next(subscription).value == b"1"
    assert polls == [True]


def test_the_loop_is_told_that_a_broker_answers(
    broker: InMemoryBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that it learns of other brokers, for when this one is gone."""
    monkeypatch.setattr(plain_polls, "ANSWERED_SECONDS", 0.0)
    with Client(broker.url, direct=False) as client:  # nothing in the background
        told: list[None] = []
        _sent_while_read(client, topic, 1)
        marker = client.position(topic, from_="earliest").marker
        reader = client.subscribe(topic, marker=marker).reader
        client._async._transport.on_response = lambda: told.append(None)
        polled = client._polls.page(reader)
        assert polled is not None and len(polled) == 1
        client.topic(topic)  # by way of the loop, behind what it was told
    assert len(told) == 2


class _Interrupts:
    """Polls whose caller is interrupted at each step in turn, as by Ctrl-C."""

    def __init__(self, messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
        self._due: Iterator[bool] = iter([])
        steps = ("settle", "begin_polled", "poll", "polled", "go_behind")
        for step in steps:
            owner: Any = messages if hasattr(messages, step) else messages.reader
            monkeypatch.setattr(owner, step, self._interrupted(getattr(owner, step)))

    def __call__(self, due: Iterator[bool]) -> None:
        self._due = due

    def _interrupted(self, function: Any) -> Any:
        def step(*arguments: Any) -> Any:
            if next(self._due, False):
                raise KeyboardInterrupt
            result = function(*arguments)
            if next(self._due, False):
                raise KeyboardInterrupt
            return result

        return step


@pytest.mark.parametrize("at", range(12))
def test_an_interrupt_at_any_step_loses_nothing_and_gives_nothing_twice(
    broker: InMemoryBroker, topic: str, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    with Client(broker.url) as client:
        client.create_topic(topic)
        subscription = client.subscribe(topic, from_="earliest")
        interrupts = _Interrupts(subscription, monkeypatch)
        values = []
        for number in range(4):
            client.publish(topic, str(number))
            interrupts(iter([False] * at + [True]))
            try:
                message = next(subscription)
            except KeyboardInterrupt:
                message = next(subscription)
            values.append(message.value)
        interrupts(iter([]))
        assert [each.value for each in islice(client.browse(topic, marker=subscription.marker), 9)] == []
    assert values == [b"0", b"1", b"2", b"3"]
