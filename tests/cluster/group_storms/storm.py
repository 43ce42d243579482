"""Faults at random under a group: `python -m tests.cluster.group_storms.storm --kind queue --seconds 600 --order key`.

Brokers, coordinators among them, are killed, paused past their sessions and cut off; the topic and `__groups` are split
and merged; ZooKeeper and the store go away. A queue group of a topic and one of a member of a topic group are worked
through side by side, with claims as JSON and as scattered Arrow. With `--kind stream` members of a stream group join,
leave, are killed, stand still and are cut off besides. With `--kind workers`, the order of 1,000 keys is judged under
workers in Python (threads and asyncio) and `mq work`, whose handlers fail and whose processes are killed. The seed is
printed. A run that is not clean leaves the brokers' logs.

With `--only kill-all` it is judged besides that the death of brokers makes no dead letters, that no more messages are
with workers than `--max-in-flight`, and, with `--lease-seconds 600 --most 1 --pause-seconds 0.2`, that nothing is
withheld for a lease which was not being claimed at that moment.
"""

import argparse
import asyncio
import random
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, cast

import httpx

from tests.cluster.checker.workload import Workload
from tests.cluster.faults.faults import FaultKind, Need, NothingHappened, kill_all, possible
from tests.cluster.faults.scene import Scene
from tests.cluster.group_storms.queue_load import QueueLoad
from tests.cluster.group_storms.side_by_side import SideBySide
from tests.cluster.group_storms.stream_load import StreamLoad
from tests.cluster.group_storms.terms import Terms
from tests.cluster.group_storms.verdict import Verdict
from tests.cluster.group_storms.worker_load import WorkerLoad
from tests.support.cluster.cluster import Cluster, NobodyAnswers
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.shared_store import S3Bucket, SharedDirectory, SharedStore

GROUPS = "__groups"
HAS: tuple[Need, ...] = ("zookeeper", "replicated", "peer-lines")
# What two brokers hold does not outlive both of them. So they get time to copy it, too.
TWO_DEATHS = ("kill-all", "kill-owner-and-leader", "lose-zookeeper-and-every-broker")
# A storm of its own takes minutes; brokers that come and go for good leave too few of them.
WITHOUT_FAILOVER = "lose-zookeeper"
"""Meanwhile the load is to get on, which it does if every owner lives."""
LEFT_OUT = ("storm", "add-broker", "remove-broker", "kill-broker-for-good")
BETWEEN_FAULTS_SECONDS = (0.0, 1.0)
SETTLING_CHANCE = 0.2
SETTLE_SECONDS = 60.0
AWAY_SECONDS = 4.0
SESSION_TIMEOUT_SECONDS = 2.5
BETWEEN_TRANSITIONS_SECONDS = (0.5, 3.0)
MOST_SEGMENTS = 7
SHOWN, SHOWN_IN_FULL = 20, 3


class Load(Protocol):
    """What is under the storm. `topics` are those whose segments it lies in."""

    topics: tuple[str, ...]

    async def create(self, cluster: Cluster, **settings: Any) -> None:
        """Make its topics."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """A context in which it runs. At its end all is done."""

    async def each_acknowledged(self, count: int, *, timeout_seconds: float = 60.0) -> None:
        """Wait until it has got on by so much."""

    def struck(self, name: str, began_at: float) -> None:
        """A fault has been, from then until now."""

    async def verdict(self) -> Verdict:
        """What is wrong in what it has seen."""

    def around(self, complaint: str) -> list[str]:
        """Everything that it has seen of what a complaint names."""

    async def close(self) -> None:
        """Ask nobody any more."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How long a storm blows, with which faults, and how durable acknowledgements of its topic are."""

    seed: int
    seconds: float
    most_faults: int | None = None
    kinds: Sequence[str] = ()
    acks: str = "stored"
    reshapes: bool = False
    """Split and merge segments all the time, besides."""


async def blow(cluster: Cluster, load: Load, weather: Weather) -> str:
    """Run load and faults; the figures. Raises `AssertionError` for what may not be."""
    await load.create(cluster, segments=3, replicas=2, acks=weather.acks)
    transitions = cluster.transitions
    try:
        async with load.running():
            await load.each_acknowledged(3)
            # These faults ask a load for its progress alone.
            progress = cast("Workload", load)
            chance = random.Random(weather.seed)
            scene = Scene(cluster, progress, (*load.topics, GROUPS), chance, away_seconds=AWAY_SECONDS)
            async with _reshaping(scene, load, weather):
                await _strike(scene, load, weather)
        verdict = await load.verdict()
    finally:
        await load.close()
    figures = f"{verdict.figures}; {cluster.transitions - transitions} splits and merges"
    shown = [*verdict.complaints[:SHOWN], f"{len(verdict.complaints)} in all", figures]
    shown += [event for complaint in verdict.complaints[:SHOWN_IN_FULL] for event in load.around(complaint)]
    assert not verdict.complaints, "\n".join(shown)
    return figures


def queue_loads(cluster: Cluster, topic: str, *, order: str, seed: int, terms: Terms | None = None) -> SideBySide:
    """A queue group of a topic, and one of a member of a topic group, half of the usual load each."""
    half = partial(QueueLoad, lambda: cluster.urls, order=order, publishers=1, workers=3, terms=terms)
    return SideBySide(half(topic, seed=seed), half(f"{topic}-member", seed=seed + 1, group_of_topics=f"{topic}-shared"))


def _usable(cluster: Cluster, acks: str, kinds: Sequence[str]) -> list[FaultKind]:
    s3: tuple[Need, ...] = ("s3",) if isinstance(cluster.store, S3Bucket) else ()
    named = [FaultKind("kill-all", kill_all), *possible(frozenset((*HAS, *s3)))]
    left_out = (*LEFT_OUT, *(TWO_DEATHS if acks == "replicated" else ()))
    return [each for each in named if each.name not in left_out and (not kinds or each.name in kinds)]


@asynccontextmanager
async def _reshaping(scene: Scene, load: Load, weather: Weather) -> AsyncIterator[None]:
    """A context in which segments are split and merged all the time, if the weather says so."""
    task = asyncio.create_task(_reshape(scene, load)) if weather.reshapes else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    if task is not None and not task.cancelled():
        task.result()


async def _reshape(scene: Scene, load: Load) -> None:
    """Split and merge, whatever else happens. Where nobody can be asked, that is what else happens."""
    while True:
        await asyncio.sleep(scene.chance.uniform(*BETWEEN_TRANSITIONS_SECONDS))
        topic, began_at = scene.chance.choice(scene.topics), time.monotonic()
        with suppress(NobodyAnswers, httpx.HTTPError):
            segments = await scene.cluster.segments(topic)
            is_split = len(segments) == 1 or (len(segments) < MOST_SEGMENTS and scene.chance.random() < 0.5)
            if is_split:
                done = await scene.cluster.split(topic, scene.chance.choice(segments), 2)
            else:
                done = await scene.cluster.merge(topic, *scene.chance.choice(list(pairwise(segments))))
            if done:
                load.struck("split" if is_split else "merge", began_at)


async def _strike(scene: Scene, load: Load, weather: Weather) -> None:
    """Faults at random. Now and then the cluster may settle: what comes upon another fault is worse than either."""
    settling = 1.0 if weather.acks == "replicated" else SETTLING_CHANCE
    usable = _usable(scene.cluster, weather.acks, weather.kinds)
    faults, until = 0, time.monotonic() + weather.seconds
    while time.monotonic() < until and (weather.most_faults is None or faults < weather.most_faults):
        kind, began_at = scene.chance.choice(usable), time.monotonic()
        if kind.name == WITHOUT_FAILOVER:
            await scene.cluster.wait_until_settled(*scene.topics, timeout_seconds=SETTLE_SECONDS)
        try:
            await kind.strike(scene)
        except NothingHappened:
            continue
        faults += 1
        if scene.chance.random() < settling:
            await scene.cluster.wait_until_settled(*scene.topics, timeout_seconds=SETTLE_SECONDS)
        await load.each_acknowledged(1)
        load.struck(kind.name, began_at)
        print(f"  {faults} {kind.name}: {time.monotonic() - began_at:.1f} s", flush=True)
        await asyncio.sleep(scene.chance.uniform(*BETWEEN_FAULTS_SECONDS))
    await scene.cluster.wait_until_settled(*scene.topics, timeout_seconds=SETTLE_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Run it. Returns 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no fault after this time")
    parser.add_argument("--kind", choices=["queue", "stream", "workers"], default="queue")
    parser.add_argument("--order", choices=["none", "key"], default="none")
    parser.add_argument("--lease-seconds", type=float, default=Terms().lease_seconds, help="of a queue group")
    parser.add_argument("--max-deliveries", type=int, default=Terms().max_deliveries)
    parser.add_argument("--max-in-flight", type=int, default=Terms().max_in_flight)
    parser.add_argument("--most", type=int, default=None, help="messages that a worker claims at a time")
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="of a worker, after each claim")
    parser.add_argument("--acks", choices=["stored", "replicated"], default="stored")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--store", choices=["s3", "directory"], default="directory")
    parser.add_argument("--session-seconds", type=float, default=SESSION_TIMEOUT_SECONDS, help="of brokers")
    parser.add_argument("--reshape", action="store_true", help="split and merge segments all the time, besides")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="braidmq-groups-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    store: SharedStore = S3Bucket() if options.store == "s3" else SharedDirectory(folder / "store")
    with SteeredCluster(
        folder, store, brokers=3, peer_lines=True, session_timeout_seconds=options.session_seconds
    ) as cluster:
        topic = f"work-{options.seed}"
        terms = Terms(
            options.lease_seconds,
            options.max_deliveries,
            options.max_in_flight,
            Terms().most if options.most is None else (options.most,),
            options.pause_seconds,
        )
        loads: dict[str, Callable[[], Load]] = {
            "stream": lambda: StreamLoad(lambda: cluster.urls, topic, seed=options.seed),
            "queue": lambda: queue_loads(cluster, topic, order=options.order, seed=options.seed, terms=terms),
            "workers": lambda: WorkerLoad(lambda: cluster.urls, topic, folder, seed=options.seed),
        }
        load = loads[options.kind]()
        weather = Weather(
            options.seed, options.seconds, kinds=options.only, acks=options.acks, reshapes=options.reshape
        )
        storm = blow(cluster, load, weather)
        try:
            print(f"clean: {asyncio.run(storm)}")
        except AssertionError as error:
            print(f"NOT CLEAN with seed {options.seed}: {error}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
