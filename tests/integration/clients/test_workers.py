"""Workers of queue groups against the broker in memory."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import pytest

from braidmq import AsyncClient, AsyncDelivery, ClaimLost, Client, ClientClosed, Delivery, GroupNotFound
from braidmq.errors import InvalidArgument, InvalidConfig, TopicNotFound
from braidmq.testing import InMemoryBroker
from tests.support.broker.answer_dropper import answer_dropper


@pytest.fixture
def client(broker: InMemoryBroker, topic: str) -> Iterator[Client]:
    with broker.client() as client:
        client.create_topic(topic)
        yield client


def publish(client: Client, topic: str, count: int) -> list[str]:
    values = [str(n) for n in range(count)]
    client.publish_many(topic, values)
    return values


def text_of(delivery: Delivery | AsyncDelivery) -> str:
    return delivery.value_text or ""


def test_a_loop_acks_what_it_works_on(client: Client, topic: str) -> None:
    wanted = publish(client, topic, 1000)
    worker = client.worker(topic, group="g", idle_seconds=0.1)
    seen = []
    for delivery in worker:
        with delivery:
            seen.append(text_of(delivery))
            assert delivery.deliveries == 1
    assert seen == wanted
    told = client.group(topic, "g").describe()
    assert (told.lag.messages, told.in_flight, worker.acked, worker.lost) == (0, 0, 1000, 0)
    with pytest.raises(ClientClosed):
        next(iter(worker))


def test_what_is_not_worked_on_goes_to_others_at_once(client: Client, topic: str) -> None:
    wanted = publish(client, topic, 50)
    with client.worker(topic, group="g", idle_seconds=1) as worker:
        for delivery in islice(worker, 20):
            delivery.ack()
        worker.flush()
    # Far sooner than a lease of 30 seconds.
    others = client.worker(topic, group="g", idle_seconds=0.1)
    seen = []
    for delivery in others:
        with delivery:
            seen.append(text_of(delivery))
    assert sorted(seen, key=int) == wanted[20:]


def test_what_was_claimed_ahead_is_not_given_up_by_a_clean_stop(client: Client, topic: str) -> None:
    client.group(topic, "g").create(max_deliveries=1)
    publish(client, topic, 50)
    for _ in range(3):
        for delivery in islice(client.worker(topic, group="g"), 2):
            delivery.ack()
    deliveries = list[int]()
    for delivery in client.worker(topic, group="g", idle_seconds=0.1):
        with delivery:
            deliveries.append(delivery.deliveries)
    assert len(deliveries) == 44 and max(deliveries) > 1
    assert client.group(topic, "g").describe().dead == 0


def test_a_failure_releases_with_the_reason_and_goes_on_to_the_caller(client: Client, topic: str) -> None:
    client.group(topic, "g").create(max_deliveries=2, backoff_seconds=[0])
    client.publish(topic, b"{}", key=b"ada", headers={"colour": b"red"})
    for attempt in (1, 2):
        with pytest.raises(KeyError):
            # Nothing is claimed ahead: that would take what was just released, and count.
            for delivery in client.worker(topic, group="g", prefetch=0):
                with delivery:
                    assert (delivery.deliveries, delivery.key_text) == (attempt, "ada")
                    delivery.json()["customer"]
    letters = until_dead(client, topic, 1)
    assert letters == [("ada", "KeyError: 'customer'")]


def until_dead(client: Client, topic: str, count: int) -> list[tuple[str, str]]:
    end_seconds = time.monotonic() + 20
    while client.group(topic, "g").describe().dead < count and time.monotonic() < end_seconds:
        pass
    return [
        (each.key_text or "", each.headers["braid-dead-reason"].decode()) for each in client.browse(f"{topic}.dead")
    ]


def test_explicit_outcomes_count(client: Client, topic: str) -> None:
    publish(client, topic, 3)
    with client.worker(topic, group="g", idle_seconds=0.2) as worker:
        later, dead, done = islice(worker, 3)
        with later:
            later.release(delay_seconds=0.3, reason="not yet")
            later.release(delay_seconds=0.3, reason="not yet")
            with pytest.raises(InvalidArgument, match="released already"):
                later.ack()
        dead.release(dead=True, reason="broken")
        done.ack()
        worker.flush()
        assert (worker.acked, worker.released) == (1, 2)
    assert [reason for _, reason in until_dead(client, topic, 1)] == ["broken"]
    again = next(iter(client.worker(topic, group="g")))
    assert (text_of(again), again.deliveries) == ("0", 2)


def test_leases_run_on_while_the_work_lasts(client: Client, topic: str) -> None:
    client.group(topic, "g").create(lease_seconds=1, backoff_seconds=[0])
    publish(client, topic, 1)
    with client.worker(topic, group="g") as worker:
        held = next(iter(worker))
        # Longer than two leases: nobody gets it meanwhile.
        assert list(client.worker(topic, group="g", idle_seconds=2.2)) == []
        held.extend()
        with pytest.raises(InvalidConfig):
            held.extend(60)
        held.ack()
        worker.flush()


def test_an_ack_that_comes_too_late_is_told(client: Client, topic: str, broker: InMemoryBroker) -> None:
    publish(client, topic, 1)
    with client.worker(topic, group="g") as worker:
        held = next(iter(worker))
        client.group(topic, "g").delete()
        with broker.client() as other, other.worker(topic, group="g") as others:
            next(iter(others)).ack()
        with pytest.raises(ClaimLost, match="1 messages"):
            held.ack()
            worker.flush()
        assert (held.is_lost, worker.lost) == (True, 1)
        worker.flush()


def test_run_works_in_threads_and_ends_cleanly_by_a_signal(client: Client, topic: str) -> None:
    publish(client, topic, 40)
    all_busy, done = threading.Barrier(8), list[str]()
    before = signal.getsignal(signal.SIGTERM)

    def handle(delivery: Delivery) -> None:
        # No thread goes on before all of them have a message.
        if all_busy.wait(20) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        done.append(text_of(delivery))

    worker = client.worker(topic, group="g")
    worker.run(handle, concurrency=8)
    assert len(done) == 8 == worker.acked
    assert signal.getsignal(signal.SIGTERM) is before
    assert client.group(topic, "g").describe().lag.messages == 32
    rest = client.worker(topic, group="g", idle_seconds=0.2)
    rest.run(lambda delivery: done.append(text_of(delivery)), concurrency=4)
    assert sorted(done, key=int) == [str(n) for n in range(40)]


def test_run_goes_on_after_failures(client: Client, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    client.group(topic, "g").create(backoff_seconds=[0])
    publish(client, topic, 10)
    failed = list[tuple[str, str]]()

    def handle(delivery: Delivery) -> None:
        if delivery.deliveries == 1:
            raise ValueError(text_of(delivery))

    worker = client.worker(topic, group="g", idle_seconds=0.3)
    worker.run(handle, on_error=lambda delivery, error: failed.append((text_of(delivery), str(error))))
    assert sorted(failed) == [(str(n), str(n)) for n in range(10)]
    assert (worker.acked, worker.released) == (10, 10) and caplog.records == []
    client.publish(topic, b"10")
    client.worker(topic, group="g", idle_seconds=0.3).run(handle)
    assert "ValueError('10')" in caplog.text


async def test_asyncio(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic)
        await client.publish_many(topic, [str(n) for n in range(100)])
        seen = list[str]()
        async for delivery in client.worker(topic, group="g"):
            async with delivery:
                seen.append(text_of(delivery))
            if len(seen) == 10:
                break
        together = asyncio.Barrier(5)

        async def handle(delivery: AsyncDelivery) -> None:
            await together.wait()
            seen.append(text_of(delivery))

        await client.worker(topic, group="g", idle_seconds=0.3).run(handle, concurrency=5)
        assert sorted(seen, key=int) == [str(n) for n in range(100)]


async def test_closing_the_client_closes_its_workers(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as other:
        await other.create_topic(topic)
        await other.publish_many(topic, ["a", "b"])
        async with broker.async_client() as client:
            worker = client.worker(topic, group="g")
            first, second = await worker.take(), await worker.take()
            assert first is not None and second is not None
            first.ack()
        told = await other.group(topic, "g").describe()
        assert told.lag.messages == 1
        again = await other.worker(topic, group="g").take()
        assert again is not None and again.value == b"b"


async def test_a_cancelled_run_gives_back_what_is_in_hand(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic)
        await client.publish(topic, "a")
        begun = asyncio.Event()

        async def handle(_: AsyncDelivery) -> None:
            begun.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(client.worker(topic, group="g").run(handle))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        again = await client.worker(topic, group="g").take()
        assert again is not None and again.deliveries == 2


def test_groups_are_created_described_and_deleted(client: Client, topic: str) -> None:
    group = client.group(topic, "g")
    publish(client, topic, 2)
    made = group.create(from_="latest", max_deliveries=3)
    assert (made.created, made.settings["max_deliveries"], made.lag.messages) == (True, 3, 0)
    changed = group.create(lease_seconds=60)
    assert (changed.created, changed.settings["lease_seconds"]) == (False, 60)
    group.delete()
    for call in (group.describe, group.delete):
        with pytest.raises(GroupNotFound):
            call()
    with pytest.raises(InvalidConfig, match="did you mean"):
        group.create(max_delivery=3)  # type: ignore[call-arg]


def test_what_ends_a_worker_is_raised(client: Client, topic: str) -> None:
    with pytest.raises(TopicNotFound):
        client.worker(f"{topic}.none", group="g").run(print)
    with pytest.raises(InvalidConfig, match="at most 30 s"):
        next(iter(client.worker(topic, group="g", lease_seconds=60)))
    for wrong in ({"prefetch": -1}, {"lease_seconds": 0.5}, {"idle_seconds": -1}):
        with pytest.raises(InvalidArgument):
            client.worker(topic, group="g", **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        client.worker(topic, group="g").run(print, concurrency=0)


async def test_lost_answers_of_acks_and_claims_cost_no_more_than_a_lease(broker: InMemoryBroker, topic: str) -> None:
    async with answer_dropper(broker.url) as proxy, AsyncClient(proxy.url, direct=False) as client:
        await client.create_topic(topic)
        # Each lost answer of a claim is a delivery, of all of its messages.
        await client.group(topic, "g").create(lease_seconds=1, backoff_seconds=[0], max_deliveries=1000)
        await client.publish_many(topic, [str(n) for n in range(20)])
        acked = set[str]()
        async with client.worker(topic, group="g") as worker:
            while len(acked) < 20:
                delivery = await worker.take()
                assert delivery is not None
                proxy.drop = len(acked) % 3
                delivery.ack()
                with suppress(ClaimLost):  # where this machine has stood still for a lease, the message comes again
                    await worker.flush()
                    acked.add(text_of(delivery))
            proxy.drop = 0
        assert sorted(acked, key=int) == [str(n) for n in range(20)] and proxy.dropped > 10
        assert (await client.group(topic, "g").describe()).lag.messages == 0


async def test_a_release_whose_answer_was_lost_is_settled(broker: InMemoryBroker, topic: str) -> None:
    async with answer_dropper(broker.url) as proxy, AsyncClient(proxy.url, direct=False) as client:
        await client.create_topic(topic)
        await client.publish(topic, "a")
        async with client.worker(topic, group="g", prefetch=0) as worker:
            delivery = await worker.take()
            assert delivery is not None
            proxy.drop = 2
            delivery.release(delay_seconds=0, reason="not mine")
            # The broker refuses the second and the third, since the first has ended the claim.
            await worker.flush()
            assert (proxy.dropped, worker.released, worker.lost) == (2, 1, 0)
            again = await worker.take()
            assert again is not None and again.deliveries == 2
            again.ack()


async def test_what_ends_a_worker_is_told_once(
    broker: InMemoryBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of its hands comes upon it; asyncio complained of all but one."""

    async def handle(delivery: AsyncDelivery) -> None:
        raise AssertionError(delivery)

    async with AsyncClient(broker.url) as client:
        with pytest.raises(TopicNotFound):
            await client.worker(topic, group="g").run(handle, concurrency=5, signals=False)
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_step_of_a_loop_that_is_given_up_closes_no_worker(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic)
        worker = client.worker(topic, group="g")
        loop = aiter(worker)
        for step in (loop.__anext__, worker.__anext__):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(step(), 0.05)
        await client.publish_many(topic, ["a", "b"])
        assert {text_of(await anext(loop)), text_of(await anext(worker))} == {"a", "b"}
        await loop.aclose()
        with pytest.raises(ClientClosed):
            await worker.take()


def test_a_message_that_was_looked_at_gives_its_document(client: Client, topic: str) -> None:
    client.create_topic(f"{topic}.json", value_type="json")
    client.publish(f"{topic}.json", {"pay": 5})
    group = client.group(f"{topic}.json", "g")
    group.create()
    assert [each.json() for each in group.messages("backlog")] == [{"pay": 5}]


def done_by_another(client: Client, topic: str, most: int, idle_seconds: float) -> list[str]:
    seen = []
    for delivery in islice(client.worker(topic, group="g", idle_seconds=idle_seconds), most):
        delivery.ack()
        seen.append(text_of(delivery))
    return seen


def test_what_closes_a_worker_waits_for_the_handlers_of_its_run(client: Client, topic: str) -> None:
    publish(client, topic, 3)
    worker = client.worker(topic, group="g")
    begun, goes_on = threading.Event(), threading.Event()

    def handle(_: Delivery) -> None:
        begun.set()
        assert goes_on.wait(60)

    running = threading.Thread(target=lambda: worker.run(handle, concurrency=1))
    closing = threading.Thread(target=worker.close)
    running.start()
    assert begun.wait(20)
    closing.start()
    # What was claimed ahead has gone back; what the handler works on has not.
    assert sorted(done_by_another(client, topic, 2, 15)) == ["1", "2"]
    assert done_by_another(client, topic, 1, 0.5) == []
    goes_on.set()
    closing.join()
    assert (worker.acked, worker.lost) == (1, 0)
    running.join()


def test_a_handler_may_close_its_worker(client: Client, topic: str) -> None:
    publish(client, topic, 3)
    worker = client.worker(topic, group="g")
    worker.run(lambda _: worker.close(), concurrency=1)
    assert (worker.acked, worker.lost) == (1, 0)


async def test_a_handler_in_asyncio_may_close_its_worker(broker: InMemoryBroker, client: Client, topic: str) -> None:
    publish(client, topic, 3)
    async with broker.async_client() as own:
        worker = own.worker(topic, group="g")

        async def handle(_: AsyncDelivery) -> None:
            await worker.close()

        await worker.run(handle, concurrency=1)
    assert (worker.acked, worker.lost) == (1, 0)
