"""`mq cluster` against answers from a script."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import pytest

from braidmq import AsyncClient
from braidmq.models import Broker
from filer.errors import InvalidInput
from mq.cli.failures import CommandFailed
from mq.cli.main import run
from mq.cli.server.cluster import drain_broker, pick_broker
from tests.support.instant_clock import InstantClock

T = TypeVar("T")
URL = "http://127.0.0.1:8080"
CLUSTER = {
    "cluster": "c",
    "version": "1.0",
    "leader": "two.01B",
    "brokers": [
        {
            "broker": "one.01A", "url": "http://one", "peer_url": "https://one:8443", "zone": "a", "version": "1.0",
            "state": "running", "segments": 12,
        },
        {
            "broker": "two.01B", "url": "http://two", "peer_url": None, "zone": "b", "version": "1.1",
            "state": "draining", "segments": 0,
        },
    ],
    "peer_keys": "required",
    "transitions": [{"topic": "t", "reason": "drain", "seal": [3, 4], "open": [5, 6]}],
    "problems": [],
    "damaged": [],
}  # fmt: skip


class ScriptedCluster:
    """Answers as `GET /v1/cluster` and the drain do: `left` are the numbers of segments, None for a broker gone."""

    def __init__(self, left: list[int | None] | None = None, cluster: dict[str, Any] = CLUSTER) -> None:
        self.left, self.cluster, self.asked = list(left or []), cluster, list[str]()
        self.refusal: dict[str, Any] | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        if request.method == "GET":
            return httpx.Response(200, json=self.cluster)
        if self.refusal is not None:
            return httpx.Response(409, json=self.refusal)
        left = self.left.pop(0)
        if left is None:
            document = {"type": "urn:braidmq:broker-not-found", "title": "", "status": 404, "detail": "no such broker"}
            return httpx.Response(404, json=document)
        return httpx.Response(202, json={"broker": request.url.path.split("/")[4], "segments": left})

    def client(self, clock: InstantClock | None = None) -> AsyncClient:
        return AsyncClient(URL, http_transport=httpx.MockTransport(self), clock=clock or InstantClock())


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[ScriptedCluster], None]:
    """Has commands talk to a script."""

    def use(script: ScriptedCluster) -> None:
        def with_client(url: str, timeout: float | None, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
            async def running() -> T:
                async with script.client() as client:
                    return await work(client)

            return asyncio.run(running())

        monkeypatch.setattr("mq.cli.server.cluster.with_client", with_client)
        monkeypatch.setattr("mq.cli.server.cluster.SystemClock", InstantClock)

    return use


Command = Callable[[ScriptedCluster], None]


def test_status_is_a_table_of_brokers_and_one_of_transitions(
    command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    command(ScriptedCluster())
    assert run(["cluster", "status"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "cluster c, version 1.0: two.01B leads"
    assert [line.split() for line in lines[1:2] + lines[3:5]] == [
        ["broker", "url", "zone", "version", "state", "segments", "leads"],
        ["one.01A", "http://one", "a", "1.0", "running", "12"],
        ["two.01B", "http://two", "b", "1.1", "draining", "0", "leads"],
    ]
    assert lines[6] == "transitions under way:" and lines[9].split() == ["t", "drain", "3,", "4", "5,", "6"]


def test_status_without_a_leader_and_without_transitions(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    command(ScriptedCluster(cluster={**CLUSTER, "leader": None, "transitions": []}))
    assert run(["cluster", "status"]) == 0
    out = capfd.readouterr().out
    assert "no broker leads" in out and "transitions" not in out


def test_status_without_zookeeper_says_so(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    lost = {"type": "zookeeper-lost", "detail": "ZooKeeper has not answered one.01A for 31 s"}
    command(ScriptedCluster(cluster={**CLUSTER, "leader": None, "problems": [lost]}))
    assert run(["cluster", "status"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].endswith("no broker leads")
    assert lines[1] == "zookeeper-lost: ZooKeeper has not answered one.01A for 31 s"


def test_status_for_machines(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    command(ScriptedCluster())
    assert run(["cluster", "status", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == CLUSTER


@pytest.mark.parametrize("name", ["one", "one.01A"])
def test_drain_asks_until_nothing_is_left(name: str, command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    script = ScriptedCluster([12, 13, 4, 0])
    command(script)
    assert run(["cluster", "drain", name]) == 0
    assert [asked for asked in script.asked if asked.startswith("POST")] == [
        "POST /v1/cluster/brokers/one.01A/drain"
    ] * 4
    assert capfd.readouterr() == ("broker one.01A owns nothing any more\n", "")


def test_drain_of_a_broker_that_owns_nothing_is_done_at_once(
    command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    command(ScriptedCluster([0]))
    assert run(["cluster", "drain", "two", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"broker": "two.01B", "segments": 0}


def test_drain_gives_up_when_nothing_moves_any_more(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    script = ScriptedCluster([3, 2] + [3, 2] * 100)
    command(script)
    assert run(["cluster", "drain", "one", "--timeout", "10"]) == 1
    error = capfd.readouterr().err
    assert error.startswith("mq: broker one.01A still has 2 segments, and none has moved for 10 seconds: ")
    assert error.count("\n") == 1
    # Twice a second, for ten seconds after the one that moved.
    assert sum(asked.startswith("POST") for asked in script.asked) == 2 + 20


async def test_a_drain_in_which_something_moves_now_and_then_goes_on() -> None:
    left = [segments for segments in range(9, 0, -1) for _ in range(19)]
    async with ScriptedCluster([*left, 0]).client() as client:
        assert (await drain_broker(client, "one", InstantClock(), timeout_seconds=10)).segments == 0


def test_drain_of_a_broker_that_is_alone_fails_with_one_line(
    command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    script = ScriptedCluster()
    script.refusal = {"type": "urn:braidmq:no-other-broker", "title": "", "status": 409, "detail": "start another"}
    command(script)
    assert run(["cluster", "drain", "one"]) == 1
    assert capfd.readouterr() == ("", "mq: start another [no-other-broker]\n")


@pytest.mark.parametrize("name", ["one", "one.01A"])
def test_undrain_asks_once(name: str, command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    script = ScriptedCluster([0])
    command(script)
    assert run(["cluster", "undrain", name]) == 0
    assert [a for a in script.asked if not a.startswith("GET")] == ["DELETE /v1/cluster/brokers/one.01A/drain"]
    assert capfd.readouterr() == ("broker one.01A takes segments again\n", "")


async def test_drain_pauses_between_questions() -> None:
    clock, script = InstantClock(), ScriptedCluster([2, 1, 0])
    async with script.client() as client:
        drained = await drain_broker(client, "one", clock, timeout_seconds=10)
    assert drained.segments == 0 and clock.naps_seconds == [0.5, 0.5]


async def test_a_broker_that_leaves_before_it_is_drained_is_a_failure() -> None:
    async with ScriptedCluster([2, None]).client() as client:
        with pytest.raises(CommandFailed, match=r"one\.01A left the cluster while it had 2 segments"):
            await drain_broker(client, "one", InstantClock(), timeout_seconds=10)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("tow", "unknown broker 'tow': did you mean 'two'?"),
        ("zzz", "unknown broker 'zzz': known are one, two"),
        ("one", r"several brokers are called 'one': name one by its id, one\.01A or one\.01C"),
    ],
)
def test_a_broker_that_is_not_meant_clearly_is_refused(wanted: str, message: str) -> None:
    brokers = [Broker(broker=each, url="u", state="running") for each in ("one.01A", "two.01B", "one.01C")]
    with pytest.raises(InvalidInput, match=message):
        pick_broker(brokers, wanted)
