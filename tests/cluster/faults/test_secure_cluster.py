"""A cluster with TLS, an issuer's tokens, a port for brokers with mutual TLS and keys, and credentials for ZooKeeper.

While it has a load, a broker dies and comes back, and all certificates and keys change. `python -m
tests.cluster.faults.prove --secure` does so with every fault there is.
"""

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.cluster.faults.mixed_workload import demand_clean, light_load, topics_for_a_while
from tests.support.broker.broker_process import BrokerFailedToStart
from tests.support.cluster.secure_cluster import SecureCluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(300)

SESSION_TIMEOUT_SECONDS = 2.5
TOPICS = {"stored": {"segments": 2}, "replicated": {"segments": 2, "acks": "replicated", "replicas": 3}}


async def test_a_broker_dies_and_all_secrets_change_under_load(tmp_path: Path) -> None:
    store = SharedDirectory(tmp_path / "store")
    with SecureCluster(tmp_path, store, session_timeout_seconds=SESSION_TIMEOUT_SECONDS) as cluster:
        async with topics_for_a_while(cluster, TOPICS) as topics:
            load = light_load(cluster, topics, seed=1)
            async with load.running():
                await load.each_acknowledged(1)
                with load.fault("kill and rotate"):
                    rotating = asyncio.create_task(cluster.rotate())
                    await cluster.kill("b0")
                    await cluster.start("b0")
                    await who_is_a_stranger_is_told_so(cluster)
                    await rotating
                    await cluster.wait_until_settled(*topics)
                await load.each_acknowledged(1)
                verdict = await demand_clean(load, cluster, tmp_path)
        assert ", 0 failed;" in verdict, verdict
        assert set(cluster.rotations.values()) == {1}
        for member in cluster.brokers.values():
            async with httpx.AsyncClient(verify=cluster.access.tls) as client:
                assert (await client.get(f"{member.process.url}/v1/topics")).status_code == 401
            assert "_not_reloaded" not in member.process.log and "_unusable" not in member.process.log


async def who_is_a_stranger_is_told_so(cluster: SecureCluster) -> None:
    stranger = cluster.stranger()
    with pytest.raises(BrokerFailedToStart):
        await asyncio.to_thread(stranger.start)
    assert stranger.returncode == 1
    [line] = [line for line in stranger.log.splitlines() if line.startswith("mq: ")]
    assert "it does not join: give it a certificate of the CA that they trust" in line
    names = {each["broker"].partition(".")[0] for each in (await cluster.ask("/v1/cluster"))["brokers"]}
    assert names <= {"b0", "b1", "b2"}
