"""Workers of groups that keep the order of keys, against the broker in memory."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator

import pytest

from braidmq import AsyncClient, AsyncDelivery, AsyncWorker, Client, Delivery
from braidmq.consume import claims
from braidmq.testing import InMemoryBroker
from filer.clock import SystemClock


@pytest.fixture
def client(broker: InMemoryBroker, topic: str) -> Iterator[Client]:
    with broker.client() as client:
        client.create_topic(topic, key_type="string")
        client.group(topic, "g").create(order="key", backoff_seconds=[0])
        yield client


class Runs:
    """What handlers ran on, by key, and whether two of a key ever ran at a time."""

    def __init__(self) -> None:
        self.of_key: dict[str | None, list[str]] = defaultdict(list)
        self.overlaps: list[str] = []
        self._running: set[str | None] = set()
        self._lock = threading.Lock()

    def begin(self, delivery: Delivery | AsyncDelivery) -> None:
        with self._lock:
            if delivery.key_text in self._running:
                self.overlaps.append(delivery.id)
            self._running.add(delivery.key_text)
            self.of_key[delivery.key_text].append(text_of(delivery))

    def end(self, delivery: Delivery | AsyncDelivery) -> None:
        with self._lock:
            self._running.discard(delivery.key_text)


class LeapingClock(SystemClock):
    """A clock that can be set forward: as if the process had been stopped meanwhile."""

    ahead_seconds = 0.0

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() + self.ahead_seconds


def text_of(delivery: Delivery | AsyncDelivery) -> str:
    return delivery.value_text or ""


def publish(client: Client, topic: str, keys: str | list[None], each: int) -> list[str]:
    for n in range(each):
        for key in keys:
            client.publish(topic, str(n), key=key)
    return [str(n) for n in range(each)]


def test_threads_work_on_one_message_of_a_key_at_a_time(client: Client, topic: str) -> None:
    wanted, runs, all_keys = publish(client, topic, "abcd", 8), Runs(), threading.Barrier(4)

    def handle(delivery: Delivery) -> None:
        runs.begin(delivery)
        all_keys.wait(20)  # at full concurrency over keys
        runs.end(delivery)

    worker = client.worker(topic, group="g", idle_seconds=0.3)
    worker.run(handle, concurrency=4)
    assert runs.of_key == dict.fromkeys("abcd", wanted)
    assert (runs.overlaps, worker.acked, worker.released) == ([], 32, 0)


async def test_tasks_work_on_one_message_of_a_key_at_a_time(broker: InMemoryBroker, client: Client, topic: str) -> None:
    wanted, runs, all_keys = publish(client, topic, "abcd", 8), Runs(), asyncio.Barrier(4)

    async def handle(delivery: AsyncDelivery) -> None:
        runs.begin(delivery)
        await all_keys.wait()
        runs.end(delivery)

    async with broker.async_client() as own:
        await own.worker(topic, group="g", idle_seconds=0.3).run(handle, concurrency=10)
    assert (runs.of_key, runs.overlaps) == (dict.fromkeys("abcd", wanted), [])


@pytest.mark.parametrize("concurrency", [1, 4])
def test_what_stands_behind_a_failure_goes_back_unseen(client: Client, topic: str, concurrency: int) -> None:
    client.group(topic, "g").create(max_deliveries=2)
    publish(client, topic, "ab", 5)
    runs = Runs()

    def handle(delivery: Delivery) -> None:
        runs.begin(delivery)
        runs.end(delivery)
        if delivery.deliveries == 1 and text_of(delivery) in ("1", "3"):
            raise ValueError(text_of(delivery))

    client.worker(topic, group="g", idle_seconds=0.5).run(handle, concurrency=concurrency, on_error=lambda *_: None)
    # The 3 came twice before it was tried, if it went back with the 1. That is no delivery that failed.
    assert [sorted(set(ran), key=ran.index) for ran in runs.of_key.values()] == [list("01234")] * 2
    for ran in runs.of_key.values():
        assert "".join(ran) in ("0112334", "011234") and runs.overlaps == []
    assert client.group(topic, "g").describe().dead == 0


def test_a_dead_letter_lets_its_key_go_on(client: Client, topic: str) -> None:
    client.group(topic, "g").create(max_deliveries=2)
    publish(client, topic, "a", 3)
    runs = Runs()

    def handle(delivery: Delivery) -> None:
        runs.begin(delivery)
        runs.end(delivery)
        if text_of(delivery) == "0":
            raise ValueError

    client.worker(topic, group="g", idle_seconds=0.5).run(handle, on_error=lambda *_: None)
    assert runs.of_key == {"a": ["0", "0", "1", "2"]}


def test_a_handler_that_releases_its_message_sees_none_behind_it_before(client: Client, topic: str) -> None:
    publish(client, topic, "a", 3)
    seen: list[tuple[str, int]] = []

    def handle(delivery: Delivery) -> None:
        seen.append((text_of(delivery), delivery.deliveries))
        if len(seen) < 3:
            delivery.release(delay_seconds=0, reason="not yet")

    client.worker(topic, group="g", idle_seconds=0.5).run(handle)
    assert [text for text, _ in seen] == ["0", "0", "0", "1", "2"]


def test_a_handler_that_has_acked_still_has_its_key(client: Client, topic: str) -> None:
    wanted, runs = publish(client, topic, "a", 4), Runs()

    def handle(delivery: Delivery) -> None:
        runs.begin(delivery)
        delivery.ack()
        threading.Event().wait(0.02)  # others would begin meanwhile
        runs.end(delivery)

    client.worker(topic, group="g", idle_seconds=0.3).run(handle, concurrency=4)
    assert (runs.of_key, runs.overlaps) == ({"a": wanted}, [])


def test_a_loop_gets_the_next_of_a_key_when_the_one_before_is_acked(client: Client, topic: str) -> None:
    publish(client, topic, "ab", 3)
    with client.worker(topic, group="g") as worker:
        loop = iter(worker)
        first, other = next(loop), next(loop)
        assert {(first.key_text, text_of(first)), (other.key_text, text_of(other))} == {("a", "0"), ("b", "0")}
        first.ack()
        following = next(loop)
        assert (following.key_text, text_of(following)) == (first.key_text, "1")
        following.release(delay_seconds=0)
        again = next(loop)
        assert (again.key_text, text_of(again)) == (first.key_text, "1")


def test_messages_without_a_key_wait_for_none(client: Client, topic: str) -> None:
    publish(client, topic, [None], 4)
    all_at_once = threading.Barrier(4)
    worker = client.worker(topic, group="g", idle_seconds=0.3)
    worker.run(lambda _: all_at_once.wait(20), concurrency=4)
    assert worker.acked == 4


def test_leases_of_what_waits_its_turn_run_on(client: Client, topic: str) -> None:
    client.group(topic, "g").create(lease_seconds=1)
    publish(client, topic, "a", 2)
    with client.worker(topic, group="g") as worker:
        loop = iter(worker)
        first = next(loop)
        # Longer than two leases.
        assert list(client.worker(topic, group="g", idle_seconds=2.2)) == []
        first.ack()
        second = next(loop)
        assert (text_of(second), second.deliveries) == ("1", 1)


def test_a_stopped_worker_gives_back_what_waits_its_turn(client: Client, topic: str) -> None:
    client.group(topic, "g").create(max_deliveries=1)
    publish(client, topic, "a", 5)
    worker, seen = client.worker(topic, group="g"), list[str]()

    def handle(delivery: Delivery) -> None:
        seen.append(text_of(delivery))
        worker.stop()

    worker.run(handle)
    client.worker(topic, group="g", idle_seconds=0.3).run(lambda delivery: seen.append(text_of(delivery)))
    assert seen == list("01234") and client.group(topic, "g").describe().dead == 0


async def take_of_three(worker: AsyncWorker, clock: LeapingClock) -> AsyncIterator[AsyncDelivery]:
    """What a worker of three tasks gets. Behind the first message it has two others of the key when the clock leaps."""
    takes = {asyncio.create_task(worker.take()) for _ in range(3)}
    while takes:
        done, takes = await asyncio.wait(takes, return_when=asyncio.FIRST_COMPLETED)
        clock.ahead_seconds = 60
        for delivery in map(asyncio.Task.result, done):
            assert delivery is not None
            yield delivery


async def test_what_may_have_gone_to_others_is_not_begun_before_a_broker_is_asked(
    broker: InMemoryBroker, client: Client, topic: str
) -> None:
    publish(client, topic, "a", 3)
    clock = LeapingClock()
    async with AsyncClient(broker.url, clock=clock) as own, own.worker(topic, group="g") as worker:
        seen = list[str]()
        async for delivery in take_of_three(worker, clock):
            if not seen:
                # The process stands still for longer than the lease, and meanwhile others get the messages.
                client.group(topic, "g").reset("earliest", force=True)
            seen.append(text_of(delivery))
            delivery.ack()
        assert seen == ["0", "0", "1"]


async def test_what_is_still_ones_own_goes_on_after_a_stop(broker: InMemoryBroker, client: Client, topic: str) -> None:
    publish(client, topic, "a", 3)
    clock = LeapingClock()
    async with AsyncClient(broker.url, clock=clock) as own, own.worker(topic, group="g") as worker:
        seen = list[tuple[str, int]]()
        async for delivery in take_of_three(worker, clock):
            seen.append((text_of(delivery), delivery.deliveries))
            delivery.ack()
        assert seen == [("0", 1), ("1", 1), ("2", 1)]


@pytest.mark.parametrize("order", ["none", "key"])
def test_with_an_older_broker_the_group_tells_its_order(
    broker: InMemoryBroker, topic: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = claims.claimed_messages
    monkeypatch.setattr(claims, "claimed_messages", lambda *given: whole(*given)._replace(order=None))
    with broker.client() as client:
        client.create_topic(topic, key_type="string")
        client.group(topic, "g").create(order=order)  # type: ignore[arg-type]
        publish(client, topic, "ab", 1)
        with client.worker(topic, group="g", idle_seconds=0.3, prefetch=0) as worker:
            loop = iter(worker)
            next(loop).ack()
            next(loop).ack()
            publish(client, topic, "a", 2)
            next(loop)
            assert [text_of(each) for each in loop] == (["1"] if order == "none" else [])
