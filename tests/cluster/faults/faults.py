"""The faults of a cluster, each a function that breaks something and repairs it.

When a fault returns, every broker runs, or is about to be counted as running again: `wait_until_settled` says when.
Brokers that come or go for good are no part of that: the cluster has more or fewer of them from then on.
Its random choices, times included, come from the scene's seeded `chance`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tests.cluster.faults.scene import Scene
from tests.cluster.faults.storm import Storm
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.s3_faults import S3Faults
from tests.support.store.shared_store import S3Bucket

SPLITS_AND_MERGES = 4
STORM_TRANSITIONS = 100
FEWEST_BROKERS, MOST_BROKERS = 1, 6
Need = Literal["zookeeper", "s3", "replicated", "peer-lines"]


Strike = Callable[[Scene], Awaitable[None]]


class NothingHappened(AssertionError):
    """The fault found nothing that it could break."""


@dataclass(frozen=True)
class FaultKind:
    """A fault, what the cluster must have for it, and the least and most brokers."""

    name: str
    strike: Strike
    needs: frozenset[Need] = frozenset()
    fewest: int = FEWEST_BROKERS
    most: int = MOST_BROKERS

    def can_strike(self, brokers: int) -> bool:
        """Whether the fault is possible with this number of brokers."""
        return self.fewest <= brokers <= self.most


async def _kill(scene: Scene, *names: str) -> None:
    await scene.cluster.kill(*names)
    await scene.pause(0.0, 2.5)
    for name in names:
        await scene.cluster.start(name)


async def kill_owner(scene: Scene) -> None:
    await _kill(scene, await scene.some_owner())


async def kill_follower(scene: Scene) -> None:
    await _kill(scene, await scene.some_follower())


async def kill_leader(scene: Scene) -> None:
    await _kill(scene, await scene.leader())


async def kill_owner_and_leader(scene: Scene) -> None:
    """Kill the leader and, if possible, an owner that is another broker: three replicas survive two deaths."""
    await scene.cluster.wait_until_replicated(*scene.topics)
    leader = await scene.leader()
    others = [owner for owner in [await scene.some_owner() for _ in range(10)] if owner != leader]
    await _kill(scene, *{leader, *others[:1]})


async def kill_all(scene: Scene) -> None:
    """Kill all brokers. Only with `stored` acknowledgements: nothing else survives this."""
    await _kill(scene, *scene.cluster.brokers)


async def pause_owner(scene: Scene) -> None:
    """Pause an owner until its session has ended. When it resumes, it does not know that."""
    owner = await scene.some_owner()
    scene.cluster.pause(owner)
    try:
        await scene.pause(1.5, 2.5)
    finally:
        scene.cluster.resume(owner)


async def restart_zookeeper(scene: Scene) -> None:
    await scene.cluster.stop_zookeeper(kill=scene.chance.random() < 0.5)
    await scene.cluster.start_zookeeper()


async def lose_zookeeper(scene: Scene) -> None:
    """Stop ZooKeeper for a while. Owners keep their segments, so publishing goes on."""
    await scene.cluster.stop_zookeeper()
    try:
        await asyncio.sleep(scene.away_seconds)
        await scene.load.each_acknowledged(5)
    finally:
        await scene.cluster.start_zookeeper()


async def lose_zookeeper_and_every_broker(scene: Scene) -> None:
    """Kill an owner, whose data only followers hold then. They have stored it by the time they are killed too."""
    names = list(scene.cluster.brokers)
    owner = await scene.some_owner()
    await scene.cluster.kill(owner)
    await scene.cluster.stop_zookeeper(kill=True)
    await scene.pause(2.0, 2.5)
    await scene.cluster.kill(*(name for name in names if name != owner))
    await scene.cluster.start_zookeeper()
    for name in names:
        await scene.cluster.start(name)


async def refuse(scene: Scene) -> None:
    """Have an owner's address refuse the other brokers, who do not hear of it either: it counts as dead, and is not.

    It stores, copies to its followers and has clients. So it is failed over although it lives.
    """
    assert isinstance(scene.cluster, SteeredCluster), "only brokers of a SteeredCluster can be made nameless"
    owner = await scene.some_owner()
    scene.cluster.refuse_peers_and_say_nothing(owner)
    try:
        await scene.pause(0.5, 2.5)
    finally:
        scene.cluster.heal(owner)


async def cut_owner_from_zookeeper(scene: Scene) -> None:
    await _cut_owner(scene, scene.cluster.cut_from_zookeeper, 1.5, 2.5)


async def cut_owner_from_store(scene: Scene) -> None:
    await _cut_owner(scene, scene.cluster.cut_from_store, 0.5, 2.5)


async def _cut_owner(scene: Scene, cut: Callable[..., None], least_sessions: float, most_sessions: float) -> None:
    owner = await scene.some_owner()
    cut(owner, silently=scene.chance.random() < 0.5)
    try:
        await scene.pause(least_sessions, most_sessions)
    finally:
        scene.cluster.heal(owner)


async def store_unavailable(scene: Scene) -> None:
    """Answer 503 to everything, sometimes after the request has taken effect."""
    faults = _s3_faults(scene)
    await _store_fault(scene, lambda: faults.unavailable(after=scene.chance.random() < 0.5))


async def store_silent(scene: Scene) -> None:
    """Answer nothing. Waiting requests take effect at the end of the fault, or have done so before."""
    faults = _s3_faults(scene)
    await _store_fault(scene, lambda: faults.hang(after=scene.chance.random() < 0.5))


async def rolling_restart(scene: Scene) -> None:
    """Drain and restart every broker, one after the other."""
    for name in list(scene.cluster.brokers):
        await scene.cluster.restart(name)
        await scene.cluster.wait_until_settled(*scene.topics)


async def split_segments(scene: Scene) -> None:
    """Split some segments, including successors of earlier splits."""
    done = 0
    for _ in range(SPLITS_AND_MERGES):
        topic = scene.chance.choice(scene.topics)
        segment = scene.chance.choice(await scene.cluster.segments(topic))
        done += await scene.cluster.split(topic, segment, scene.chance.randint(2, 3))
    if not done:
        raise NothingHappened("all segments were sealed meanwhile")


async def merge_segments(scene: Scene) -> None:
    """Merge some neighbours, including successors of earlier merges. If only one segment is left, split it."""
    done = 0
    for _ in range(SPLITS_AND_MERGES):
        topic = scene.chance.choice(scene.topics)
        segments = await scene.cluster.segments(topic)
        if len(segments) == 1:
            await scene.cluster.split(topic, segments[0], 3)
        else:
            done += await scene.cluster.merge(topic, *scene.chance.choice(list(pairwise(segments))))
    if not done:
        raise NothingHappened("there were no two segments to merge, or one was sealed meanwhile")


async def split_and_kill_owner(scene: Scene) -> None:
    """Kill the owner of a segment during its split. Any broker may finish the split."""
    topic = scene.chance.choice(scene.topics)
    segment, owner = scene.chance.choice(list((await scene.cluster.owners_by_segment(topic)).items()))
    asked = asyncio.ensure_future(scene.cluster.split(topic, segment, 2))
    await asyncio.sleep(scene.chance.uniform(0.0, 0.1))
    await scene.cluster.kill(owner)
    await scene.pause(1.0, 2.0)
    # It may have been that broker which was asked, or one that waited for it.
    await asyncio.gather(asked, return_exceptions=True)
    await scene.cluster.start(owner)


async def storm(scene: Scene) -> None:
    """Split and merge from several tasks at once, while brokers and consumers are killed."""
    made = Storm(scene, transitions=STORM_TRANSITIONS)
    await made.blow()
    print(f"  {made.report()}", flush=True)


async def add_broker(scene: Scene) -> None:
    """Add a broker."""
    await scene.cluster.add()


async def remove_broker(scene: Scene) -> None:
    """Drain and remove a broker."""
    await scene.cluster.remove(scene.some_broker())


async def kill_broker_for_good(scene: Scene) -> None:
    """Kill a broker permanently. Let the cluster settle before another dies: a segment may have only two replicas."""
    await scene.cluster.kill_for_good(scene.some_broker())


def _s3_faults(scene: Scene) -> S3Faults:
    assert isinstance(scene.cluster.store, S3Bucket), "only an S3 server can be told to fail"
    return scene.cluster.store.faults


async def _store_fault(scene: Scene, begin: Callable[[], None]) -> None:
    faults = _s3_faults(scene)
    struck = faults.struck
    begin()
    try:
        await asyncio.sleep(scene.away_seconds)
        assert faults.struck > struck, "nobody asked the store meanwhile"
    finally:
        faults.heal()


_ZOOKEEPER: frozenset[Need] = frozenset({"zookeeper"})
_S3: frozenset[Need] = frozenset({"s3"})

# After these there are as many brokers as before.
PASSING = (
    FaultKind("kill-owner", kill_owner),
    FaultKind("kill-follower", kill_follower, frozenset({"zookeeper", "replicated"}), fewest=2),
    FaultKind("kill-leader", kill_leader, _ZOOKEEPER),
    FaultKind("kill-owner-and-leader", kill_owner_and_leader, _ZOOKEEPER, fewest=3),
    FaultKind("pause-owner", pause_owner),
    FaultKind("restart-zookeeper", restart_zookeeper, _ZOOKEEPER),
    FaultKind("lose-zookeeper", lose_zookeeper, _ZOOKEEPER),
    FaultKind("lose-zookeeper-and-every-broker", lose_zookeeper_and_every_broker, _ZOOKEEPER),
    FaultKind("refuse", refuse, frozenset({"zookeeper", "peer-lines"}), fewest=2),
    FaultKind("cut-owner-from-zookeeper", cut_owner_from_zookeeper, _ZOOKEEPER),
    FaultKind("cut-owner-from-store", cut_owner_from_store, _S3),
    FaultKind("store-unavailable", store_unavailable, _S3),
    FaultKind("store-silent", store_silent, _S3),
    FaultKind("rolling-restart", rolling_restart),
    FaultKind("split", split_segments),
    FaultKind("merge", merge_segments),
    FaultKind("split-and-kill-owner", split_and_kill_owner),
    FaultKind("storm", storm, _ZOOKEEPER, fewest=3),
)
LASTING = (
    FaultKind("add-broker", add_broker, _ZOOKEEPER, most=MOST_BROKERS - 1),
    FaultKind("remove-broker", remove_broker, _ZOOKEEPER, fewest=FEWEST_BROKERS + 1),
    FaultKind("kill-broker-for-good", kill_broker_for_good, _ZOOKEEPER, fewest=FEWEST_BROKERS + 1),
)
KINDS = (*PASSING, *LASTING)


def possible(has: frozenset[Need]) -> list[FaultKind]:
    """The kinds of fault that are possible in a cluster with these parts."""
    return [kind for kind in KINDS if kind.needs <= has]


def kind_named(name: str) -> FaultKind:
    """The kind of fault with a name. Raises `KeyError`."""
    return {kind.name: kind for kind in KINDS}[name]
