"""Brokers that prove by keys who they are: what others send is refused, what others answer counts for nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx
import orjson
import pytest

from filer.errors import InvalidConfig
from mq.base.errors import PeerUnproven
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.peer_keys.kept_keys import LOOK_SECONDS, kept_keys
from mq.peer_keys.signatures import REQUEST_HEADER
from mq.peers.calls import SECRET_HEADER
from mq.peers.transport import PeerAnswer
from tests.support.broker.problems import check_problem
from tests.support.cluster.http_cluster import HttpCluster, PartedPeers, until
from tests.support.cluster.shared_coordinator import SharedCoordinator

OLD, NEW = "old " + "ab" * 32, "new " + "cd" * 32
MESSAGES = [(f"key-{n}", str(n)) for n in range(40)]


class Sent(NamedTuple):
    """A request from one broker to another."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "peer-keys"
    file.write_text(OLD)
    return file


@pytest.fixture
async def brokers(keys: Path) -> AsyncIterator[HttpCluster]:
    cluster = HttpCluster()
    await cluster.start("a", "b", "c", peer_keys=keys)
    yield cluster
    await cluster.stop_all()


def record(monkeypatch: pytest.MonkeyPatch, word: str) -> list[Sent]:
    """The requests from now on whose path ends with that word, as somebody on the network sees them."""
    sent: list[Sent] = []
    send = PartedPeers.send

    async def recorded(
        self: PartedPeers, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_seconds: float
    ) -> PeerAnswer:
        if url.partition("?")[0].endswith(f"/{word}"):
            sent.append(Sent(method, url, dict(headers), bytes(body)))
        return await send(self, method, url, headers, body, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(PartedPeers, "send", recorded)
    return sent


async def test_brokers_with_keys_do_what_brokers_do_and_send_no_secret(
    brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends = record(monkeypatch, "append")
    await brokers.create("a", "t", segments=6, acks="replicated", replicas=2)
    for name in "abc":
        await brokers.publish(name, "t", *MESSAGES)
    for name in "abc":
        assert sorted(await brokers.values(name, "t")) == sorted([value for _, value in MESSAGES] * 3)
    assert appends
    assert all(REQUEST_HEADER in each.headers and SECRET_HEADER not in each.headers for each in appends)


async def test_a_request_is_good_once_as_it_is_and_at_its_receiver(
    brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await brokers.create("a", "t", segments=1)
    [owner] = await brokers.owners("a", "t")
    other, third = sorted(set("abc") - {owner})
    await brokers.publish(other, "t", ("k", "first"))
    appends = record(monkeypatch, "append")
    await brokers.publish(other, "t", ("k", "second"))
    [seen] = appends
    target = seen.url.partition("/internal")[2]
    async with httpx.AsyncClient() as client:

        async def again(
            to: str, *, body: bytes = seen.body, headers: Mapping[str, str] = seen.headers
        ) -> httpx.Response:
            url = f"{brokers.up[to].url}/internal{target}"
            return await client.request(seen.method, url, headers=headers, content=body)

        check_problem(await again(owner), 403, "forbidden", "was here before, or came too late")
        check_problem(await again(third), 403, "forbidden", f"is for broker '{brokers.up[owner].broker.id}'")
        unsigned = {name: value for name, value in seen.headers.items() if name != REQUEST_HEADER}
        check_problem(await again(owner, headers=unsigned), 403, "forbidden", "prove by keys who they are")
        secret = brokers.up[owner].broker.peers._secret
        with_secret = {**unsigned, SECRET_HEADER: secret}
        check_problem(await again(owner, headers=with_secret), 403, "forbidden", "prove by keys who they are")
        peers = brokers.peers[other]
        monkeypatch.setattr(peers, "send", _changing(peers, b"third", b"other"))
        answer = await brokers.up[other].client.post("/v1/topics/t/messages?key=k", content=b"third")
        check_problem(answer, 502, "broker-refused", "it was changed on its way")
    assert await brokers.values(other, "t") == ["first", "second"]


def _changing(peers: PartedPeers, before: bytes, after: bytes) -> object:
    """Somebody on the way, who changes what a message says."""
    send = peers.send

    async def changed(
        method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_seconds: float
    ) -> PeerAnswer:
        return await send(method, url, headers, bytes(body).replace(before, after), timeout_seconds=timeout_seconds)

    return changed


LIE = orjson.dumps({"end_offset": 1, "seal_offset": 1, "stored_bytes": 1})
LIES = {
    "lies about a seal": PeerAnswer(200, {"content-type": "application/json"}, LIE),
    "redirects": PeerAnswer(307, {"location": "http://127.0.0.1:9/"}, b""),
    "says that it owns nothing": PeerAnswer(503, {}, orjson.dumps({"type": "urn:braidmq:segment-moved", "detail": ""})),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_an_impostor_at_a_dead_broker_s_address_counts_for_nothing(
    lie: PeerAnswer, brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader asks the dead owner for the end of its segment, and somebody else answers."""
    await brokers.create("a", "t", segments=3)
    await brokers.publish("a", "t", *MESSAGES)
    dead, asked = brokers.up["c"], []
    send = PartedPeers.send

    async def sent(
        self: PartedPeers, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_seconds: float
    ) -> PeerAnswer:
        if url.startswith(dead.url):
            asked.append(url)
            return lie
        return await send(self, method, url, headers, body, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(PartedPeers, "send", sent)
    brokers.expel("c")

    async def is_failed_over() -> bool:
        return "c" not in await brokers.owners("a", "t")

    await until(is_failed_over)
    assert any("/seal?" in url for url in asked)
    assert "broker_not_proven" in caplog.text
    values = await brokers.values("a", "t")
    assert sorted(values) == sorted(value for _, value in MESSAGES)
    with pytest.raises(PeerUnproven, match="it is not signed"):
        await brokers.up["a"].broker.peers.presence(dead.url)


async def test_keys_rotate_under_load_without_a_failed_request(
    brokers: HttpCluster, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await brokers.create("a", "t", segments=6)
    published, ended = 0, asyncio.Event()

    async def load(name: str) -> None:
        nonlocal published
        while not ended.is_set():
            positions = await brokers.publish(name, "t", *MESSAGES)
            published += sum(each["count"] for each in positions)

    async with asyncio.TaskGroup() as tasks:
        for name in "abc":
            tasks.create_task(load(name))
        for text in (f"{OLD}\n{NEW}", f"{NEW}\n{OLD}", NEW):
            beside = keys.with_name("next")
            beside.write_text(text)
            beside.replace(keys)

            async def are_read(expected: str = text) -> bool:
                held = [each.broker.peer_keys for each in brokers.up.values()]
                return all(each is not None and each.now.text().split() == expected.split() for each in held)

            await until(are_read)
            before = published
            while published < before + 3 * len(MESSAGES):
                await asyncio.sleep(LOOK_SECONDS / 10)
        keys.write_text("nonsense")

        async def is_told() -> bool:
            return caplog.text.count("peer_keys_unusable") == len(brokers.up)

        await until(is_told)
        ended.set()
    assert len(await brokers.values("b", "t")) == min(published, 10_000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "the brokers of this cluster prove by keys who they are: give --peer-keys"),
        (NEW, "the key 'new' is not among the peer keys of this broker"),
        (OLD.replace("ab", "cd"), "the key has another secret here"),
    ],
    ids=["no key", "another key", "another secret"],
)
async def test_a_broker_with_a_wrong_key_is_told_why_and_does_not_join(
    text: str | None, why: str, brokers: HttpCluster, tmp_path: Path
) -> None:
    file = tmp_path / "wrong"
    if text is not None:
        file.write_text(text)
    settings = BrokerSettings(broker="wrong", peer_keys=None if text is None else file)
    wrong = Broker(
        brokers.store,
        brokers.clock,
        SharedCoordinator(brokers.membership),
        settings,
        peer_keys=kept_keys(settings.peer_keys, None, brokers.clock),
    )
    with pytest.raises(InvalidConfig, match="do not take this one for one of them, and it does not join") as caught:
        await wrong.start("http://127.0.0.1:9")
    assert why in str(caught.value)
    assert {each.partition(".")[0] for each in brokers.membership.members} == set("abc")
    await wrong.close()


async def test_a_cluster_gets_keys_one_broker_after_the_other(keys: Path) -> None:
    """First all brokers have keys and go on with those that have none; then none goes on with such."""
    cluster = HttpCluster()
    await cluster.start("a", "b")
    try:
        await cluster.create("a", "t", segments=4)
        expected = 0
        for settings in ({"peer_keys": keys, "peer_keys_optional": True}, {"peer_keys": keys}):
            for name in "ab":
                await cluster.stop(name)
                await cluster.start(name, **settings)
                for through in "ab":
                    expected += sum(each["count"] for each in await cluster.publish(through, "t", *MESSAGES))
                    assert len(await cluster.values(through, "t")) == expected
        secret = {SECRET_HEADER: cluster.up["a"].broker.peers._secret}
        for name in "ab":
            answer = await cluster.up[name].client.get("/internal/v1/presence", headers=secret)
            check_problem(answer, 403, "forbidden", "prove by keys who they are")
    finally:
        await cluster.stop_all()
