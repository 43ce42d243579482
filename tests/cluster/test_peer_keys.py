"""Processes that prove by keys who they are, to each other and to ZooKeeper: who cannot does not join."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.broker.broker_process import BrokerFailedToStart, BrokerProcess
from tests.support.cluster.cluster import UPKEEP, Cluster
from tests.support.net.tcp_proxy import HOST
from tests.support.store.shared_store import SharedDirectory

KEY, OTHER_KEY = "k " + "ab" * 32, "other " + "cd" * 32
LIE = b'{"end_offset":0,"seal_offset":0,"stored_bytes":0}'


@contextlib.asynccontextmanager
async def impostor(port: int) -> AsyncIterator[list[str]]:
    """Listens at a port, and says to everybody that a segment ends at its beginning. Yields what it was asked."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            asked.append(head.decode().partition("\r\n")[0])
            sizes = (len(LIE), LIE.decode())
            text = (
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
            )
            writer.write((text % sizes).encode())
            await writer.drain()

    async with await asyncio.start_server(serve, HOST, port):
        yield asked


def why_it_ended(like: BrokerProcess, **changed: str) -> str:
    """The one line of a broker that is started with other arguments than that one, and ends with 1."""
    broker = BrokerProcess()
    broker.arguments = [changed.get(before.strip("-").replace("-", "_"), each)
                        for before, each in zip(["", *like.arguments], like.arguments, strict=False)]  # fmt: skip
    with pytest.raises(BrokerFailedToStart), broker:
        pass
    assert broker.returncode == 1
    [line] = [line for line in broker.log.splitlines() if line.startswith("mq: ")]
    return line


async def test_who_has_no_key_does_not_join_and_an_impostor_is_not_heard(tmp_path: Path) -> None:
    files = {"keys": KEY, "other-keys": OTHER_KEY, "auth": "braid:secret", "other-auth": "braid:wrong"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    proofs = ["--peer-keys", str(tmp_path / "keys"), "--zookeeper-auth", str(tmp_path / "auth")]
    with Cluster(tmp_path, SharedDirectory(tmp_path / "store"), brokers=2, arguments=[*UPKEEP, *proofs]) as cluster:
        await cluster.wait_until_settled()
        await cluster.create_topic("t", segments=4)
        await cluster.wait_until_settled("t")
        dead, alive = cluster.brokers["b0"].process, cluster.brokers["b1"].process
        assert {"b0", "b1"} == set(await cluster.owners("t"))
        async with httpx.AsyncClient(timeout=30) as client:
            for n in range(40):
                url = (dead, alive)[n % 2].url
                (await client.post(f"{url}/v1/topics/t/messages?key=k{n}", content=str(n))).raise_for_status()
            line = await asyncio.to_thread(why_it_ended, alive, peer_keys=str(tmp_path / "other-keys"))
            assert "it does not join" in line and "the key 'other' is not among the peer keys of this broker" in line
            line = await asyncio.to_thread(why_it_ended, alive, zookeeper_auth=str(tmp_path / "other-auth"))
            assert "its credentials are not those that made them; give all brokers of the cluster the same" in line
            assert len((await cluster.ask("/v1/cluster"))["brokers"]) == 2
            await cluster.kill("b0")
            async with impostor(int(dead.url.rpartition(":")[2])) as asked:
                await cluster.wait_until_settled("t")
                assert any("/seal?" in each for each in asked), asked
            assert "broker_not_proven" in alive.log
            page = (await client.get(f"{alive.url}/v1/topics/t/messages?limit=1000")).raise_for_status().json()
            assert sorted(int(each["value"]) for each in page["messages"]) == list(range(40))
    for secret in ("abab", "cdcd", "braid:"):
        assert secret not in dead.log + alive.log + " ".join(alive.arguments)
