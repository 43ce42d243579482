"""A cluster of real processes on this machine: ZooKeeper, a store, brokers, and connections that can be disturbed.

    with Cluster(tmp_path, SharedDirectory(tmp_path / "store"), brokers=3) as cluster:
        await cluster.wait_until_settled("events")
        owner = await cluster.owner_of("events", 0)
        await cluster.kill(owner)
        ...
        await cluster.start(owner)      # the same name, another incarnation, another port

Every broker reaches ZooKeeper, and an S3 store, through a proxy of its own. Without ZooKeeper there is one broker,
a cluster of its own. No process outlives the context; the brokers' logs stay, in `logs` below its folder.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from leader.membership.coordinator import NO_SESSION
from tests.support.broker.broker_process import BrokerFailedToStart, BrokerProcess
from tests.support.cluster.access import Access
from tests.support.cluster.zookeeper_process import ZooKeeperProcess
from tests.support.net.tcp_proxy import HOST, TcpProxy
from tests.support.store.shared_store import SharedStore

ASK_SECONDS = 15.0
# A transition is a chain of puts, and waits behind those of the load.
TRANSITION_SECONDS = 60.0
SETTLE_SECONDS = 120.0
SPREAD_SECONDS = 30.0
POLL_SECONDS = 0.4
STARTS = 4
SESSION_TIMEOUT_SECONDS = 4.0
# Brokers that are gone for good, whose logs are kept.
REMOVED_KEPT = 20
# Upkeep goes on under load, but leaves the processors to it.
UPKEEP = ("--maintenance-interval", "2", "--rollup-age", "0")


class NotSettled(AssertionError):
    """The cluster did not settle in time; the message says what was unfinished."""


class NobodyAnswers(AssertionError):
    """No running broker answered."""


class ClusterBroker:
    """The process of a broker and its connections to ZooKeeper and the store. `end` closes what is left of them."""

    def __init__(
        self, name: str, process: BrokerProcess, lines: dict[str, TcpProxy], end: contextlib.ExitStack
    ) -> None:
        self.name, self.process, self.lines, self.end = name, process, lines, end
        self.paused = False

    @property
    def announced_url(self) -> str:
        """Where the other brokers reach it."""
        return f"http://{self.lines['peers'].address}" if "peers" in self.lines else self.process.url

    def start(self) -> None:
        """Start its process."""
        self.process.start()
        if "peers" in self.lines:
            self.lines["peers"].aim(int(self.process.url.rpartition(":")[2]))
            self.lines["peers"].heal()

    def ended(self) -> None:
        """Its process has ended: its address refuses, also where there is a proxy in front."""
        if "peers" in self.lines:
            self.lines["peers"].cut()

    @property
    def serves(self) -> bool:
        """Whether it runs and is not paused."""
        return self.process.running and not self.paused


class Cluster:
    """Brokers `b0`, `b1`, … on one store. `urls` is kept up to date in place: hand it to a `Workload` as it is.

    With `peer_lines` brokers reach each other through proxies as well, and clients do not.
    """

    def __init__(
        self,
        folder: Path,
        store: SharedStore,
        *,
        brokers: int = 3,
        zookeeper: bool = True,
        session_timeout_seconds: float = SESSION_TIMEOUT_SECONDS,
        arguments: Sequence[str] = UPKEEP,
        peer_lines: bool = False,
    ) -> None:
        if not zookeeper and brokers != 1:
            raise ValueError("without ZooKeeper a broker is a cluster of its own")
        self.store, self.session_timeout_seconds = store, session_timeout_seconds
        self.zookeeper = (
            ZooKeeperProcess(folder, session_timeout_seconds=session_timeout_seconds) if zookeeper else None
        )
        self.brokers: dict[str, ClusterBroker] = {}
        self.urls: list[str] = []
        self.access = Access()
        self.transitions = 0
        """How many splits and merges that were asked for have taken place."""
        self._arguments, self._first_brokers, self._named = list(arguments), brokers, 0
        self._peer_lines = peer_lines
        self._logs = folder / "logs"
        self._removed: deque[ClusterBroker] = deque(maxlen=REMOVED_KEPT)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self.store)
            if self.zookeeper is not None:
                self._stack.enter_context(self.zookeeper)
            members = [self._new_broker() for _ in range(self._first_brokers)]
            with ThreadPoolExecutor(len(members)) as pool:
                list(pool.map(lambda member: member.start(), members))
            self._refresh()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        self.write_logs(self._logs)

    # -- brokers come and go -------------------------------------------------------------------------------

    async def start(self, name: str) -> None:
        """Start a broker again after its end: as another incarnation, on another port.

        One that gets no session in time, on a machine with too much to do, ends, and is started again.
        """
        for attempt in range(1, STARTS + 1):
            try:
                await asyncio.to_thread(self.brokers[name].start)
                break
            except BrokerFailedToStart as error:
                if attempt == STARTS or NO_SESSION not in str(error).splitlines()[-1]:
                    raise
        self._refresh()

    async def add(self) -> str:
        """Start one more broker. Returns its name."""
        member = self._new_broker()
        await self.start(member.name)
        return member.name

    async def kill(self, *names: str) -> None:
        """Kill brokers with SIGKILL, all at once."""
        for name in names:
            self.brokers[name].process.process.kill()
        for name in names:
            await asyncio.to_thread(self.brokers[name].process.wait)
            self.brokers[name].ended()

    async def drain(self, name: str) -> int:
        """SIGTERM, and wait until the broker has handed over and ended. Returns its exit code."""
        code = await asyncio.to_thread(self.brokers[name].process.terminate)
        self.brokers[name].ended()
        return code

    async def restart(self, name: str) -> None:
        """Drain a broker and start it again. Raises `AssertionError` if it did not end well."""
        code = await self.drain(name)
        assert code == 0, f"{name} ended with {code}:\n{self.brokers[name].process.log[-2000:]}"
        await self.start(name)

    async def remove(self, name: str) -> None:
        """Drain a broker permanently."""
        code = await self.drain(name)
        assert code == 0, f"{name} ended with {code}:\n{self.brokers[name].process.log[-2000:]}"
        self._forget(name)

    async def kill_for_good(self, name: str) -> None:
        """Kill a broker with SIGKILL permanently."""
        await self.kill(name)
        self._forget(name)

    def pause(self, name: str) -> None:
        """SIGSTOP: it stops and keeps its connections."""
        self.brokers[name].process.stop()
        self.brokers[name].paused = True

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.brokers[name].process.cont()
        self.brokers[name].paused = False

    async def start_zookeeper(self) -> None:
        """Start ZooKeeper again after `stop_zookeeper`: on this thread, since it ends with its thread."""
        assert self.zookeeper is not None, "a cluster without ZooKeeper"
        self.zookeeper.start(wait=False)
        await asyncio.to_thread(self.zookeeper.wait_until_serving)

    async def stop_zookeeper(self, *, kill: bool = False) -> None:
        """SIGTERM or SIGKILL, and wait until it is gone."""
        assert self.zookeeper is not None, "a cluster without ZooKeeper"
        await asyncio.to_thread(self.zookeeper.kill if kill else self.zookeeper.stop)

    # -- lines break ---------------------------------------------------------------------------------------

    def cut_from_zookeeper(self, name: str, *, silently: bool = False) -> None:
        """Cut a broker off from ZooKeeper: reset and refuse connections, or stop passing anything on."""
        self._cut(name, "zookeeper", silently)

    def cut_from_store(self, name: str, *, silently: bool = False) -> None:
        """Cut a broker off from the store likewise."""
        self._cut(name, "store", silently)

    def refuse_peers(self, name: str) -> None:
        """Have a broker's announced address refuse connections. It lives, calls others, and its clients reach it."""
        self._cut(name, "peers", False)

    def heal(self, name: str) -> None:
        """Restore all connections of a broker."""
        for line in self.brokers[name].lines.values():
            line.heal()

    # -- what the cluster says -----------------------------------------------------------------------------

    async def ask(self, path: str) -> Any:
        """The answer of any running broker to a GET; raises `NobodyAnswers`."""
        failures = []
        async with self._client() as client:
            for member in [member for member in self.brokers.values() if member.serves]:
                try:
                    return await _get(client, member.process.url, path)
                except httpx.HTTPError as error:
                    failures.append(f"{member.name}: {error!r}")
        raise NobodyAnswers(f"GET {path}: {failures}")

    async def create_topic(self, topic: str, **settings: Any) -> None:
        """Create a topic through any broker."""
        async with self._client() as client:
            (await client.put(f"{self._any_url()}/v1/topics/{topic}", json=settings)).raise_for_status()

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic through any broker."""
        async with self._client() as client:
            (await client.delete(f"{self._any_url()}/v1/topics/{topic}")).raise_for_status()

    async def split(self, topic: str, segment: int, parts: int) -> bool:
        """Split an open segment through any broker. False if it was sealed in the meantime."""
        return await self._post(f"/v1/topics/{topic}/segments/{segment}/split", {"parts": parts})

    async def merge(self, topic: str, segment: int, other: int) -> bool:
        """Merge two open neighbours through any broker. False if one was sealed in the meantime."""
        return await self._post(f"/v1/topics/{topic}/segments/{segment}/merge", {"with": other})

    async def _post(self, path: str, body: Mapping[str, int]) -> bool:
        async with self._client() as client:
            answer = await client.post(f"{self._any_url()}{path}", json=body, timeout=TRANSITION_SECONDS)
            if answer.status_code == 409 and answer.json()["type"] == "urn:braidmq:segment-sealed":
                return False
            answer.raise_for_status()
            self.transitions += 1
            return True

    def _client(self) -> httpx.AsyncClient:
        return self.access.client(timeout=ASK_SECONDS)

    def _any_url(self) -> str:
        for member in self.brokers.values():
            if member.serves:
                return member.process.url
        raise NobodyAnswers("no broker runs")

    async def segments(self, topic: str) -> list[int]:
        """Ids of the open segments."""
        return [entry["segment"] for entry in (await self.ask(f"/v1/topics/{topic}/route"))["segments"]]

    async def owner_of(self, topic: str, segment: int) -> str:
        """Name of the broker that owns an open segment."""
        return (await self.owners_by_segment(topic))[segment]

    async def owners(self, topic: str) -> list[str]:
        """Names of the brokers that own its open segments."""
        return list((await self.owners_by_segment(topic)).values())

    async def owners_by_segment(self, topic: str) -> dict[int, str]:
        """Its open segments, and the names of the brokers that own them."""
        route = await self.ask(f"/v1/topics/{topic}/route")
        return {entry["segment"]: _name(entry["owner"]["broker"]) for entry in route["segments"]}

    async def followers(self, topic: str) -> list[list[str]]:
        """For each open segment the names of the brokers that hold copies of its tail."""
        described = await self.ask(f"/v1/topics/{topic}")
        opened = [entry for entry in described["segments"] if entry["state"] == "open"]
        return [[_name(broker) for broker in entry["brokers"][1:]] for entry in opened]

    async def leader(self) -> str | None:
        """Name of the leader, as far as the cluster knows it."""
        leader = (await self.ask("/v1/cluster"))["leader"]
        return None if leader is None else _name(leader)

    async def wait_until_settled(self, *topics: str, timeout_seconds: float = SETTLE_SECONDS) -> None:
        """Until all brokers know of each other and of a live leader, no transition is under way, and every open
        segment of these topics has live brokers only. Raises `NotSettled`.
        """
        await self._wait_until_settled(topics, timeout_seconds, resting=True)

    async def wait_until_served(self, *topics: str, timeout_seconds: float = SETTLE_SECONDS) -> None:
        """As `wait_until_settled`, but with any transitions in progress."""
        await self._wait_until_settled(topics, timeout_seconds, resting=False)

    async def _wait_until_settled(self, topics: Sequence[str], timeout_seconds: float, *, resting: bool) -> None:
        unsettled = ["nobody has answered yet"]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds), self._client() as client:
                while unsettled:
                    members = [member for member in self.brokers.values() if member.serves]
                    urls = {member.announced_url for member in members}
                    views = (_unsettled(client, member, topics, urls, resting=resting) for member in members)
                    unsettled = [problem for view in await asyncio.gather(*views) for problem in view]
                    if unsettled:
                        await asyncio.sleep(POLL_SECONDS)
        if unsettled:
            raise NotSettled("; ".join(unsettled))

    async def wait_until_replicated(self, *topics: str, timeout_seconds: float = SETTLE_SECONDS) -> None:
        """Until every open segment of these has as many brokers as the topic asks for and the cluster has.

        Raises `NotSettled`.
        """
        under_replicated = ["nobody has answered yet"]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while under_replicated := under_replicated_segments(
                    [await self.ask(f"/v1/topics/{t}") for t in topics], len(self.brokers)
                ):
                    await asyncio.sleep(POLL_SECONDS)
        if under_replicated:
            raise NotSettled("; ".join(under_replicated))

    async def wait_until_spread(self, *, timeout_seconds: float = SPREAD_SECONDS) -> None:
        """Until no broker owns more segments, of all topics, than the average, rounded up, plus one.

        Raises `NotSettled`.
        """
        problems = ["nobody has answered yet"]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while problems := self._overloaded(await self.ask("/v1/cluster")):
                    await asyncio.sleep(POLL_SECONDS)
        if problems:
            raise NotSettled(f"after {timeout_seconds:g} s: {'; '.join(problems)}")

    def topic_complaints(self) -> list[str]:
        """What is wrong with any version of any topic.json so far."""
        histories = self.store.topic_histories()
        return [complaint for history in histories for complaint in history.complaints]

    def logged(self, text: str) -> int:
        """In how many lines of their logs brokers have written this."""
        members = (*self._removed, *self.brokers.values())
        return sum(text in line for member in members for line in member.process.log.splitlines())

    def write_logs(self, folder: Path) -> None:
        """Write the logs of the brokers, one file each."""
        folder.mkdir(parents=True, exist_ok=True)
        for member in (*self._removed, *self.brokers.values()):
            (folder / f"{member.name}.log").write_text(member.process.log)

    # -- inside --------------------------------------------------------------------------------------------

    def _new_broker(self) -> ClusterBroker:
        """A broker with its connections, not started yet."""
        name = f"b{self._named}"
        self._named += 1
        lines: dict[str, TcpProxy] = {}
        end = self._stack.enter_context(contextlib.ExitStack())
        arguments = ["--broker", name, *self._arguments]
        if self.zookeeper is not None:
            line = lines["zookeeper"] = end.enter_context(TcpProxy(HOST, self.zookeeper.port))
            arguments += ["--zookeeper", line.address, "--session-timeout", str(self.session_timeout_seconds)]
        if self.store.port is not None:
            lines["store"] = end.enter_context(TcpProxy(HOST, self.store.port))
        if self._peer_lines:
            line = lines["peers"] = end.enter_context(TcpProxy(HOST, 0))
            arguments += ["--advertise", f"http://{line.address}"]
        arguments += self.store.arguments(lines["store"].port if "store" in lines else None)
        process = self._process(name, arguments)
        # Only its end: it is started where it does not hold up others.
        end.push(process)
        self.brokers[name] = ClusterBroker(name, process, lines, end)
        return self.brokers[name]

    def _process(self, name: str, arguments: Sequence[str]) -> BrokerProcess:
        return BrokerProcess(args=arguments, env=self.store.environment)

    def _forget(self, name: str) -> None:
        """Remove a broker that has ended permanently; keep its log for a while."""
        member = self.brokers.pop(name)
        member.end.close()
        self._removed.append(member)
        self._refresh()

    def _overloaded(self, cluster: dict[str, Any]) -> list[str]:
        """The brokers that own too much according to one broker, once it knows all running brokers."""
        owned = {_name(broker["broker"]): broker["segments"] for broker in cluster["brokers"]}
        if owned.keys() != self.brokers.keys():
            return [f"brokers {sorted(owned)} are seen"]
        return overloaded(owned)

    def _refresh(self) -> None:
        self.urls[:] = [member.process.url for member in self.brokers.values() if member.process.url]

    def _cut(self, name: str, line: str, silently: bool) -> None:
        lines = self.brokers[name].lines
        if line not in lines:
            raise ValueError(f"{name} has no line to the {line}: nothing passes over a network")
        cut: Callable[[], None] = lines[line].black_hole if silently else lines[line].cut
        cut()


async def _unsettled(
    client: httpx.AsyncClient, member: ClusterBroker, topics: Sequence[str], urls: set[str], *, resting: bool
) -> list[str]:
    """What is not settled according to one broker. Of topics it is asked once the cluster is: most of the wait is for
    that, and to answer takes brokers time that they and others need."""
    try:
        cluster = await _get(client, member.process.url, "/v1/cluster")
        settled = not unsettled_view(cluster, [], urls, resting=resting)
        states = [await _get(client, member.process.url, f"/v1/topics/{topic}") for topic in topics if settled]
    except httpx.HTTPError as error:
        return [f"{member.name} does not answer: {error!r}"]
    return [f"{member.name}: {problem}" for problem in unsettled_view(cluster, states, urls, resting=resting)]


def unsettled_view(
    cluster: dict[str, Any], topics: Sequence[dict[str, Any]], urls: set[str], *, resting: bool = True
) -> list[str]:
    """What is not settled according to one broker, if the brokers at `urls` are all that run."""
    seen = {broker["broker"]: broker["url"] for broker in cluster["brokers"]}
    problems = []
    if set(seen.values()) != urls:
        problems.append(f"it sees {sorted(seen)}")
    if cluster["leader"] not in seen:
        problems.append(f"its leader is {cluster['leader']}")
    if resting and cluster["transitions"]:
        problems.append(f"under way: {cluster['transitions']}")
    for topic in topics:
        for segment in topic["segments"]:
            if segment["state"] == "open" and not set(segment["brokers"]) <= seen.keys():
                problems.append(f"{topic['topic']}: segment {segment['segment']} is with {segment['brokers']}")
    return problems


def under_replicated_segments(topics: Sequence[dict[str, Any]], brokers: int) -> list[str]:
    """Open segments with fewer brokers than their topic's `replicas`, or than there are."""
    return [
        f"{topic['topic']}: segment {segment['segment']} is with {segment['brokers']} only"
        for topic in topics
        for segment in topic["segments"]
        if segment["state"] == "open" and len(segment["brokers"]) < min(topic["config"]["replicas"], brokers)
    ]


def overloaded(owned: Mapping[str, int]) -> list[str]:
    """Brokers that own more segments than the average, rounded up, plus one."""
    most = math.ceil(sum(owned.values()) / len(owned)) + 1
    return [f"{name} owns {count} segments, of at most {most}" for name, count in owned.items() if count > most]


async def _get(client: httpx.AsyncClient, url: str, path: str) -> Any:
    return (await client.get(url + path)).raise_for_status().json()


def _name(broker: str) -> str:
    """The name of a broker from its id, which carries the incarnation."""
    return broker.rpartition(".")[0]
