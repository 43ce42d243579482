"""A process without processor time, room, memory, or a certificate that lasts."""

import asyncio
import contextlib
import shutil
import socket
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.alerts.conftest import OpenDesk
from tests.alerts.load import messages, repeated
from tests.alerts.one_broker import TOKEN, one_broker
from tests.support.broker.broker_process import BrokerProcess
from tests.support.net.authority import Authority, Identity
from tests.support.store.shared_store import S3Bucket

pytestmark = pytest.mark.timeout(600)
MIB = 1024 * 1024


@pytest.mark.alerts("BraidMQEventLoopBlocked")
async def test_a_broker_gets_too_little_processor_time(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with one_broker(tmp_path, data=tmp_path / "data") as broker:
        desk = open_desk(broker.environment, token=TOKEN)
        desk.prometheus.watch([broker.process.url])
        await desk.prometheus.until_scraped(1)

        async def stand_still() -> None:
            broker.process.stop()
            await asyncio.sleep(0.5)
            broker.process.cont()

        async with repeated(stand_still, pause_seconds=0.5):
            await desk.fires("BraidMQEventLoopBlocked")
        broker.process.cont()
        await desk.end("BraidMQEventLoopBlocked")


@pytest.mark.alerts("BraidMQConnectionsRefused")
async def test_a_client_opens_too_many_connections(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with one_broker(tmp_path, data=tmp_path / "data", arguments=("--connections", "10")) as broker:
        desk = open_desk(broker.environment, token=TOKEN)
        desk.prometheus.watch([broker.process.url])
        await desk.prometheus.until_scraped(1)
        parts = urlsplit(broker.process.url)
        with contextlib.ExitStack() as open_:
            for _ in range(40):
                open_.enter_context(socket.create_connection((parts.hostname, parts.port)))
            await desk.fires("BraidMQConnectionsRefused", reason="gave-way")
        await desk.end("BraidMQConnectionsRefused")


@pytest.mark.alerts("BraidMQCertificateExpires")
async def test_a_certificate_is_not_renewed(tmp_path: Path, open_desk: OpenDesk) -> None:
    authority = Authority(tmp_path)
    shown = Identity(tmp_path / "shown.pem", tmp_path / "shown.key")
    put(authority.sign("soon", until=timedelta(days=1)), shown)
    arguments = ["--tls-cert", str(shown.cert), "--tls-key", str(shown.key)]
    with BrokerProcess(data=tmp_path / "data", args=arguments, tls=authority.client()) as process:
        desk = open_desk({"BRAIDMQ_URL": process.url, "BRAIDMQ_CA": str(authority.ca)}, ca=authority.ca)
        desk.prometheus.watch([process.url])
        await desk.fires("BraidMQCertificateExpires", listener="clients")
        put(authority.sign("later", until=timedelta(days=90)), shown)
        await desk.end("BraidMQCertificateExpires")


def put(identity: Identity, there: Identity) -> None:
    """Put a certificate and its key in the place of others."""
    for source, target in zip(identity, there, strict=True):
        new = target.with_suffix(".new")
        shutil.copy(source, new)
        new.replace(target)


@pytest.mark.alerts("BraidMQMemoryNearLimit")
async def test_what_is_not_stored_fills_the_memory(tmp_path: Path, open_desk: OpenDesk) -> None:
    arguments = ("--front-store-bytes", "1GiB", "--publish-timeout", "100")
    with S3Bucket() as bucket:
        given = [*bucket.arguments(None), *arguments]
        async with one_broker(tmp_path, arguments=given, environment=bucket.environment) as broker:
            told = (await broker.client.get("/metrics")).raise_for_status().text.splitlines()
            now, most = (
                float(next(line for line in told if line.startswith(name)).split()[1])
                for name in ("process_resident_memory_bytes", "braidmq_memory_limit_bytes")
            )
            # The limit of the machine is far away: what counts as near it is not.
            desk = open_desk(broker.environment, {"BraidMQMemoryNearLimit": (now + 400 * MIB) / most}, token=TOKEN)
            desk.prometheus.watch([broker.process.url])
            await desk.prometheus.until_scraped(1)
            bucket.faults.hang()
            path, body = "/v1/topics/orders/messages?key=k", bytes(20 * MIB)
            # Each waits for its answer, once; what a busy machine refuses for its slowness takes no memory.
            publishes = [lambda: broker.client.post(path, content=body)] * 30
            async with repeated(*publishes, pause_seconds=1000):
                await desk.fires("BraidMQMemoryNearLimit")
                bucket.faults.heal()
            async with repeated(lambda: broker.client.post("/v1/topics/orders/messages", json=messages(1))):
                await desk.end("BraidMQMemoryNearLimit", timeout_seconds=150)
