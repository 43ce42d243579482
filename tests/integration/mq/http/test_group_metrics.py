"""The lag of groups in the metrics of their coordinator."""

import asyncio
import re
from pathlib import Path

from mq.groups.lag_watch import LagWatch
from tests.support.broker.group_requests import G, T, claim, decide, publish
from tests.support.broker.http_broker import HttpBroker
from tests.support.metric_rules import problems

OPERATIONS = (Path(__file__).parents[4] / "docs" / "operations.md").read_text("utf-8")
WORDS_OF_PROMETHEUS = {"max", "sum", "by", "delta", "increase", "and", "unless"}
WORD = re.compile(r"[a-z_]+")


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


async def test_alerts_of_the_page_name_what_a_broker_tells(memory_broker: HttpBroker) -> None:
    section = OPERATIONS.partition("### Alerts on groups\n")[2].partition("\n### ")[0]
    rules = re.findall(r"^ +expr: (.+)$", section, re.MULTILINE)
    assert len(rules) == section.count("- alert: ") == 5
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    await watch_of(memory_broker).look()
    text = (await memory_broker.client.get("/metrics")).text
    labels = {
        name: set(re.findall(r'(\w+)="', each)) for name, each in re.findall(r"^(\w+){(.*)} ", text, re.MULTILINE)
    }
    for rule in rules:
        words = WORD.findall(re.sub(r"\[\d+m\]", "", rule))
        metrics = {word for word in words if word.startswith("braidmq_")}
        grouped = {name for each in re.findall(r"by \(([^)]*)\)", rule) for name in each.split(", ")}
        assert metrics and grouped
        assert set(words) <= metrics | grouped | WORDS_OF_PROMETHEUS
        assert all(grouped <= labels[metric] for metric in metrics)
        assert rule.count("(") == rule.count(")")
    assert set(re.findall(r"\$labels\.(\w+)", section)) == {"group", "topic"}
