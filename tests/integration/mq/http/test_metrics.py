"""What a broker tells Prometheus while topics come, are used and go."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from filer.clock import SystemClock
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, MakeData
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.metric_rules import problems

OTHER = "(other)"
PUT_SECONDS = 0.03


class SlowStore(ForwardingStore):
    """Takes its time for segment files."""

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if key.endswith(".parquet"):
            await SystemClock().sleep(PUT_SECONDS)
        await super().create(key, data, metadata=metadata)


async def samples(broker: HttpBroker) -> Mapping[str, float]:
    """The value of each series, by its name with the values of its labels, in the order of their names."""
    text = (await broker.client.get("/metrics")).raise_for_status().text
    return {
        " ".join([each.name, *(value for _, value in sorted(each.labels.items()))]): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


async def create(broker: HttpBroker, topic: str, segments: int = 1) -> None:
    (await broker.client.put(f"/v1/topics/{topic}", json={"segments": segments})).raise_for_status()


async def publish(broker: HttpBroker, topic: str) -> None:
    (await broker.client.post(f"/v1/topics/{topic}/messages", content=b"value")).raise_for_status()


def topics_of(told: Mapping[str, float]) -> set[str]:
    return {name.rsplit(" ", 1)[1] for name in told if name.startswith("braidmq_messages_stored_total ")}


async def test_a_new_topic_has_all_its_series_at_0_and_its_open_segments() -> None:
    async with http_broker(MemoryStore()) as broker:
        await create(broker, "birds", segments=3)
        told = await samples(broker)
    counters = [value for name, value in told.items() if name.endswith(" birds") and "_total" in name]
    assert len(counters) > 15
    assert set(counters) == {0.0}
    assert told["braidmq_open_segments birds"] == 3
    assert told["braidmq_transitions_total split birds"] == told["braidmq_record_faults_total older birds"] == 0


async def test_the_bytes_of_a_topic_are_those_of_its_files() -> None:
    store = MemoryStore()
    async with http_broker(store, maintenance_interval=3600) as broker:
        await create(broker, "birds")
        for _ in range(3):
            await publish(broker, "birds")
        await broker.broker.maintenance.round()
        told = await samples(broker)
        stored = [
            each.size_bytes async for each in store.list("topics/birds/segments/") if each.key.endswith(".parquet")
        ]
    assert told["braidmq_files_stored_total birds"] == len(stored)
    assert told["braidmq_bytes_stored_total birds"] == told["braidmq_topic_bytes birds"] == sum(stored)


async def test_the_bytes_of_a_topic_are_known_after_a_restart() -> None:
    store = MemoryStore()
    async with http_broker(store, maintenance_interval=3600) as broker:
        await create(broker, "birds")
        await publish(broker, "birds")
    async with http_broker(store, maintenance_interval=3600) as broker:
        await broker.broker.topics.topic("birds")  # or the round may come before the topic is read
        await broker.broker.maintenance.round()
        told = await samples(broker)
    assert told["braidmq_topic_bytes birds"] > 0
    assert told["braidmq_bytes_stored_total birds"] == 0, "this life has stored nothing"


async def test_the_series_of_a_deleted_topic_go_and_do_not_come_back() -> None:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as broker:
        await create(broker, "birds")
        await publish(broker, "birds")
        assert (await broker.client.get("/v1/topics/birds/messages")).json()["messages"]
        (await broker.client.delete("/v1/topics/birds")).raise_for_status()
        assert topics_of(await samples(broker)) == {OTHER}
        assert (await broker.client.get("/v1/topics/birds/messages")).status_code == 404
        await broker.broker.scrubber.round()
        for _ in range(3):
            await broker.broker.maintenance.round()
        told = await samples(broker)
        assert [name for name in told if "birds" in name] == []
        assert told["braidmq_transitions_total delete (other)"] == 1
        await create(broker, "birds")
        told = await samples(broker)
        assert told["braidmq_messages_stored_total birds"] == 0
        assert told["braidmq_open_segments birds"] == 1


async def test_topics_beyond_the_bound_are_shown_together() -> None:
    async with http_broker(MemoryStore(), metrics_topics=2) as broker:
        for topic in "abcde":
            await create(broker, topic)
        assert topics_of(await samples(broker)) == {"a", "b", OTHER}
        for topic in "edc":
            await publish(broker, topic)
        told = await samples(broker)
    assert topics_of(told) == {"e", "d", OTHER}
    assert [told[f"braidmq_messages_stored_total {topic}"] for topic in ("e", "d", OTHER)] == [1, 1, 1]
    assert told[f"braidmq_open_segments {OTHER}"] == 3


async def test_no_series_tell_when_others_began() -> None:
    async with http_broker(MemoryStore()) as broker:
        await create(broker, "birds")
        await publish(broker, "birds")
        assert [name for name in await samples(broker) if name.split()[0].endswith("_created")] == []


async def test_how_long_publishes_take_is_counted_once_they_are_acknowledged() -> None:
    async with http_broker(SlowStore(MemoryStore())) as broker:
        await create(broker, "birds")
        for _ in range(3):
            await publish(broker, "birds")
        assert (await broker.client.post("/v1/topics/birds/messages?acks=none", content=b"x")).status_code == 422
        rows = {"messages": [{"key": "heron", "value": "at dusk"}]}
        (await broker.client.post("/v1/topics/birds/messages", json=rows)).raise_for_status()
        told = await samples(broker)
    assert told["braidmq_publish_seconds_count stored"] == told["braidmq_publish_seconds_bucket stored +Inf"] == 4
    assert told["braidmq_publish_seconds_bucket stored 0.025"] == 0
    assert told["braidmq_publish_seconds_sum stored"] >= 4 * PUT_SECONDS
    assert told["braidmq_publish_seconds_count replicated"] == 0


async def test_how_long_reads_take_is_counted_for_pages_with_messages() -> None:
    async with http_broker(MemoryStore()) as broker:
        await create(broker, "birds")
        page = (await broker.client.get("/v1/topics/birds/messages")).json()
        assert (await samples(broker))["braidmq_read_seconds_count"] == 0
        await publish(broker, "birds")
        assert (await broker.client.get("/v1/topics/birds/messages")).json()["messages"]
        assert (await broker.client.get("/v1/topics/birds/segments/0/messages")).json()["messages"]
        told = await samples(broker)
    assert page["messages"] == []
    assert told["braidmq_read_seconds_count"] == 2
    assert 0 < told["braidmq_read_seconds_sum"] < 10


async def test_reasons_that_can_be_told_beforehand_count_from_0() -> None:
    async with http_broker(MemoryStore()) as broker:
        told = await samples(broker)
    for series in (
        "braidmq_publishes_refused_total front-store-full",
        "braidmq_publishes_refused_total topic-not-found",
        "braidmq_connections_refused_total no-room",
        "braidmq_connections_refused_total gave-way",
        "braidmq_scrubbed_objects_total damaged",
    ):
        assert told[series] == 0, series


async def test_what_a_broker_in_use_tells_obeys_promtools_rules() -> None:
    async with http_broker(MemoryStore()) as broker:
        await create(broker, "birds")
        await publish(broker, "birds")
        assert (await broker.client.get("/v1/topics/none/messages")).status_code == 404
        assert problems((await broker.client.get("/metrics")).text) == []
