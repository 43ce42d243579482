"""The store answers errors, slowly, or at another time than the broker's clock."""

import asyncio
from pathlib import Path

import pytest

from tests.alerts.conftest import OpenDesk
from tests.alerts.load import messages, repeated
from tests.alerts.one_broker import TOKEN, one_broker
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.shared_store import S3Bucket

pytestmark = pytest.mark.timeout(600)
UPKEEP = ("--maintenance-interval", "1", "--publish-timeout", "4", "--read-timeout", "4")
MIB = 1024 * 1024
OF_ERRORS = (
    *("BraidMQStoreStalled", "BraidMQStoreErrors", "BraidMQStoreThrottles", "BraidMQPublishErrors"),
    *("BraidMQFrontStoreFills", "BraidMQUpkeepFails", "BraidMQAuditFails", "BraidMQPolicyUnusable"),
)


@pytest.mark.alerts(*OF_ERRORS, "BraidMQBrokerNotReady")
async def test_the_store_answers_503(tmp_path: Path, open_desk: OpenDesk) -> None:
    arguments = (*UPKEEP, "--front-store-bytes", str(4 * MIB), "--drain-timeout", "300")
    with S3Bucket() as bucket:
        store = bucket.arguments(None)
        async with one_broker(tmp_path, arguments=[*store, *arguments], environment=bucket.environment) as broker:
            environment = {**broker.environment, "BRAIDMQ_STORE": store[1], "BRAIDMQ_S3_ENDPOINT": bucket.endpoint}
            # Work that fails is done again later and later.
            desk = open_desk(environment, {"BraidMQUpkeepFails": 0.5}, token=TOKEN, window_seconds=20)
            desk.prometheus.watch([broker.process.url])
            await desk.prometheus.until_scraped(1)
            numbers = iter(range(1_000_000))
            async with repeated(
                *(
                    lambda: broker.client.post("/v1/topics/orders/messages", json=messages(1, "x" * MIB))
                    for _ in range(4)
                ),
                # Changes are recorded before they are answered.
                lambda: broker.client.put(f"/v1/topics/t{next(numbers)}"),
                lambda: broker.client.get("/v1/topics/orders/messages"),
            ):
                bucket.faults.unavailable()
                for name in OF_ERRORS:
                    await desk.fires(name)
            broker.process.process.terminate()
            await desk.fires("BraidMQBrokerNotReady")
            bucket.faults.heal()
            assert await asyncio.to_thread(broker.process.wait) == 0
            await asyncio.to_thread(broker.process.start)
            desk.prometheus.watch([broker.process.url])
            await desk.end(*OF_ERRORS, "BraidMQBrokerNotReady")


@pytest.mark.alerts("BraidMQStoreSlow", "BraidMQPublishSlow")
async def test_the_store_is_slow(tmp_path: Path, open_desk: OpenDesk) -> None:
    with S3Bucket() as bucket:
        store = bucket.arguments(None)
        async with one_broker(tmp_path, arguments=store, environment=bucket.environment) as broker:
            desk = open_desk(
                broker.environment, dict.fromkeys(("BraidMQStoreSlow", "BraidMQPublishSlow"), 0.7), token=TOKEN
            )
            desk.prometheus.watch([broker.process.url])
            await desk.prometheus.until_scraped(1)
            async with repeated(lambda: broker.client.post("/v1/topics/orders/messages", json=messages(1))):
                bucket.faults.slow_puts(1.5)
                await desk.fires("BraidMQStoreSlow", operation="create")
                await desk.fires("BraidMQPublishSlow", acks="stored")
                bucket.faults.heal()
                await desk.end("BraidMQStoreSlow", "BraidMQPublishSlow")


@pytest.mark.alerts("BraidMQClockDiffers", "BraidMQDeletionPaused")
async def test_the_clock_is_set_wrong(tmp_path: Path, open_desk: OpenDesk) -> None:
    arguments = ("--maintenance-interval", "1", "--grace", "60")
    with SteeredCluster(tmp_path, S3Bucket(), brokers=1, zookeeper=False, arguments=arguments) as cluster:
        await cluster.create_topic("orders")
        desk = open_desk({"BRAIDMQ_URL": cluster.urls[0]})
        desk.prometheus.watch(cluster.urls)
        await desk.prometheus.until_scraped(1)
        cluster.step_clock("b0", 20.0)
        await desk.fires("BraidMQClockDiffers")
        await desk.fires("BraidMQDeletionPaused")
        cluster.step_clock("b0", 0.0)
        await desk.end("BraidMQClockDiffers", "BraidMQDeletionPaused", timeout_seconds=150)
