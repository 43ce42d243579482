"""The lag of groups in the metrics of their coordinator."""

import asyncio

from mq.groups.lag_watch import LagWatch
from tests.support.broker.group_requests import G, T, claim, decide, publish
from tests.support.broker.http_broker import HttpBroker
from tests.support.metric_rules import problems


def watch_of(broker: HttpBroker) -> LagWatch:
    running = broker.broker
    return LagWatch(running.groups.known, running.groups.source, running.metrics.groups, running.clock)


async def scraped(broker: HttpBroker) -> dict[str, float]:
    text = (await broker.client.get("/metrics")).text
    assert problems(text) == []
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith("braidmq_group")]
    return {name: float(value) for name, _, value in lines}


async def test_the_lag_of_a_group_is_told(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    await publish(memory_broker, *"abc")
    watch = watch_of(memory_broker)
    await watch.look()
    label = '{group="g",topic="t"}'
    found = await scraped(memory_broker)
    assert found["braidmq_groups"] == 1 and found[f"braidmq_group_lag_messages{label}"] == 3
    first_seconds = found[f"braidmq_group_lag_seconds{label}"]
    claimed = await claim(memory_broker, max=2)
    await asyncio.sleep(0.02)
    await watch.look()
    found = await scraped(memory_broker)
    assert found[f"braidmq_group_in_flight_messages{label}"] >= 2
    assert first_seconds < found[f"braidmq_group_lag_seconds{label}"] < 60
    (await decide(memory_broker, "releases", claimed, dead=True)).raise_for_status()
    async with asyncio.timeout(20):
        while (await scraped(memory_broker)).get(f"braidmq_group_dead_messages_total{label}") != 2:
            await watch.look()
    # The series of a topic that was deleted go with it.
    await memory_broker.client.delete(T)
    await watch.look()
    assert not any("lag" in name for name in await scraped(memory_broker))


async def test_nothing_is_measured_until_somebody_asks(memory_broker: HttpBroker) -> None:
    assert not memory_broker.broker.metrics.groups.was_asked
    await memory_broker.client.get("/metrics")
    assert memory_broker.broker.metrics.groups.was_asked
