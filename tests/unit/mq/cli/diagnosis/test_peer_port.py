"""What `mq doctor` says of where brokers call each other."""

import asyncio
import re
import socket

import pytest

from braidmq.models import Broker, Cluster
from filer.clock import SystemClock
from mq.cli.diagnosis.peer_port import CALL, PeerPort, Result, look_at, of_call, of_keys, of_ports, outcome_of
from mq.peers.calls import PREFIX

DAY_SECONDS = 86_400.0
HERE, AWAY = "http://127.0.0.1:8081", "http://broker-1.internal.example.org:8081"
TLS = "https://broker-1.internal.example.org:8081"


def test_the_call_is_one_of_brokers() -> None:
    assert f"{PREFIX}/presence" == CALL


@pytest.mark.parametrize(
    ("url", "seen", "keys", "result", "says"),
    [
        (TLS, PeerPort(True, left_seconds=90 * DAY_SECONDS), False, "ok", "closes the connection .* ends in 90.0 days"),
        (TLS, PeerPort(True, left_seconds=13 * DAY_SECONDS), False, "warning", "ends in 13.0 days"),
        (TLS, PeerPort(True, left_seconds=-3 * DAY_SECONDS), True, "failed", "has ended 3.0 days ago"),
        (TLS, PeerPort(True), False, "ok", "closes the connection of who is no broker$"),
        (TLS, PeerPort(True, status=403, left_seconds=1e9), False, "warning", "asks for no certificate: .*--peer-tls"),
        (TLS, PeerPort(True, status=403, left_seconds=1e9), True, "ok", "refuses who has no key"),
        (TLS, PeerPort(True, status=200, left_seconds=1e9), True, "failed", "answers a call of brokers 200 to anybody"),
        (HERE, PeerPort(False, status=403), True, "ok", "no TLS, on this machine alone"),
        (AWAY, PeerPort(False, status=403), True, "warning", "who is on the way reads"),
        (AWAY, PeerPort(False, "no answer"), False, "ok", r"not reached from here \(no answer\)"),
    ],
)
def test_what_is_seen_is_judged(url: str, seen: PeerPort, keys: bool, result: Result, says: str) -> None:
    found, detail = outcome_of("b", url, seen, proves_by_keys=keys)
    assert found == result
    assert re.search(says, detail), detail


def cluster(*peer_urls: str | None, keys: str | None = "none") -> Cluster:
    brokers = tuple(Broker(broker=f"b{n}", state="running", peer_url=url) for n, url in enumerate(peer_urls))
    return Cluster(cluster="c", version="1", leader=None, brokers=brokers, peer_keys=keys)


def test_who_has_a_port_for_brokers_is_told() -> None:
    assert of_ports(cluster(None, None, keys=None)) == ("ok", of_ports(cluster(None, keys=None))[1])
    assert "not told" in of_ports(cluster(None, keys=None))[1]
    assert of_ports(cluster(None, None))[0] == "ok" and "at the port for clients" in of_ports(cluster(None))[1]
    result, detail = of_ports(cluster(TLS, None, None))
    assert result == "warning" and detail.startswith("b1, b2 have none")
    assert of_ports(cluster(TLS, TLS)) == ("ok", "each broker has one")
    assert of_ports(cluster(TLS)) == ("ok", "the broker has one")


def test_keys_are_told() -> None:
    assert of_keys(cluster(None, keys=None)) is None
    for keys, urls, result, says in (
        ("required", (None, None), "ok", "prove by keys"),
        ("optional", (None, None), "warning", "--peer-keys-optional"),
        ("none", (None, None), "warning", "cluster/cluster.json"),
        ("none", (None,), "ok", "no other broker"),
    ):
        found = of_keys(cluster(*urls, keys=keys))
        assert found is not None and found[0] == result and says in found[1]


@pytest.mark.parametrize(("status", "result"), [(403, "ok"), (404, "ok"), (200, "failed"), (307, "failed")])
def test_a_call_of_brokers_that_is_served_is_told(status: int, result: Result) -> None:
    assert of_call(HERE, status)[0] == result


async def test_who_is_no_broker_is_told() -> None:
    """Something that answers anybody, something that says nothing sensible, and nobody at all."""
    answers = [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"what?\r\n", b"no TLS\r\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answers.pop(0))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await look_at(url, SystemClock()) == PeerPort(False, status=200)
        assert await look_at(url, SystemClock()) == PeerPort(False, status=None)
        seen = await look_at(url.replace("http:", "https:"), SystemClock())
        assert seen.has_tls and seen.unreachable.startswith("TLS: ")
    with socket.socket() as bound:  # and nobody listens at it
        bound.bind(("127.0.0.1", 0))
        seen = await look_at(f"http://127.0.0.1:{bound.getsockname()[1]}", SystemClock())
        assert seen.unreachable and seen.status is None
