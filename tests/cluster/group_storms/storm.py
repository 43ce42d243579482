"""Faults at random under a queue group: `python -m tests.cluster.group_storms.storm --seconds 600 --order key`.

Brokers, coordinators among them, are killed, paused past their sessions and cut off; the topic and `__groups` are split
and merged; ZooKeeper and the store go away. The seed is printed. A run that is not clean leaves the brokers' logs.
"""

import argparse
import asyncio
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tests.cluster.checker.workload import Workload
from tests.cluster.faults.faults import FaultKind, Need, NothingHappened, kill_all, possible
from tests.cluster.faults.scene import Scene
from tests.cluster.group_storms.queue_load import QueueLoad
from tests.cluster.group_storms.queue_verdict import around, judge
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.shared_store import S3Bucket, SharedDirectory, SharedStore

TOPIC, GROUPS = "work", "__groups"
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
SHOWN, SHOWN_IN_FULL = 20, 3


async def blow(
    cluster: Cluster,
    *,
    order: str,
    seed: int,
    seconds: float,
    most_faults: int | None = None,
    kinds: Sequence[str] = (),
    acks: str = "stored",
) -> str:
    """Run load and faults; the figures. Raises `AssertionError` for what may not be."""
    topic = f"{TOPIC}-{order}-{seed}"
    await cluster.create_topic(topic, segments=3, replicas=2, acks=acks)
    load = QueueLoad(lambda: cluster.urls, topic, order=order, seed=seed)
    try:
        async with load.running():
            await load.each_acknowledged(3)
            # These faults ask a load for its progress alone.
            progress = cast("Workload", load)
            scene = Scene(cluster, progress, (topic, GROUPS), random.Random(seed), away_seconds=AWAY_SECONDS)
            settling = 1.0 if acks == "replicated" else SETTLING_CHANCE
            usable, until = _usable(cluster, acks, kinds), time.monotonic() + seconds
            await _strike(scene, load, usable, until=until, most_faults=most_faults, settling=settling)
        letters = await load.dead_values()
    finally:
        await load.close()
    verdict = judge(load.history, letters, order=order)
    shown = [*verdict.complaints[:SHOWN], f"{len(verdict.complaints)} in all", verdict.figures]
    shown += [event for complaint in verdict.complaints[:SHOWN_IN_FULL] for event in around(load.history, complaint)]
    assert not verdict.complaints, "\n".join(shown)
    return verdict.figures


def _usable(cluster: Cluster, acks: str, kinds: Sequence[str]) -> list[FaultKind]:
    s3: tuple[Need, ...] = ("s3",) if isinstance(cluster.store, S3Bucket) else ()
    named = [FaultKind("kill-all", kill_all), *possible(frozenset((*HAS, *s3)))]
    left_out = (*LEFT_OUT, *(TWO_DEATHS if acks == "replicated" else ()))
    return [each for each in named if each.name not in left_out and (not kinds or each.name in kinds)]


async def _strike(
    scene: Scene,
    load: QueueLoad,
    usable: Sequence[FaultKind],
    *,
    until: float,
    most_faults: int | None,
    settling: float,
) -> None:
    """Faults at random. Now and then the cluster may settle: what comes upon another fault is worse than either."""
    faults = 0
    while time.monotonic() < until and (most_faults is None or faults < most_faults):
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
    parser.add_argument("--order", choices=["none", "key"], default="none")
    parser.add_argument("--acks", choices=["stored", "replicated"], default="stored")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--store", choices=["s3", "directory"], default="directory")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="braidmq-groups-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    store: SharedStore = S3Bucket() if options.store == "s3" else SharedDirectory(folder / "store")
    with SteeredCluster(
        folder, store, brokers=3, peer_lines=True, session_timeout_seconds=SESSION_TIMEOUT_SECONDS
    ) as cluster:
        storm = blow(
            cluster,
            order=options.order,
            seed=options.seed,
            seconds=options.seconds,
            kinds=options.only,
            acks=options.acks,
        )
        try:
            print(f"clean: {asyncio.run(storm)}")
        except AssertionError as error:
            print(f"NOT CLEAN with seed {options.seed}: {error}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
