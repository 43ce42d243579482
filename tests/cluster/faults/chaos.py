"""Random faults for a time you name: `make chaos SECONDS=600`, or `python -m tests.cluster.faults.chaos --help`.

Round after round, each on new topics: a mixed workload, a few faults, a verdict. Brokers also come and go for good, so
that there are 1 to 6 of them; a round begins with as many as its topics have replicas, if not more. The seed is
printed; the same seed makes the same choices, though not the same timing. A round that is not clean leaves its history
and the brokers' logs.
"""

import argparse
import asyncio
import random
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.checker.stalls import longest_stall_seconds
from tests.cluster.faults.faults import KINDS, FaultKind, Need, possible
from tests.cluster.faults.mixed_workload import demand_clean, mixed_workload, topics_for_a_while
from tests.cluster.faults.scene import Scene
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.shared_store import S3Bucket, SharedDirectory, SharedStore

FAULTS_A_ROUND = 4
REPLICAS = 3
RECOVER_SECONDS = 90.0
AWAY_SECONDS = (5.0, 20.0, 60.0)


def main(arguments: Sequence[str]) -> int:
    """Run the rounds. Returns 0 if every round was clean."""
    options = _checked(_options(), arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
    folder = Path(tempfile.mkdtemp(prefix="braidmq-chaos-"))
    print(f"seed {seed}, in {folder}", flush=True)
    # `kill` ends it as Ctrl-C does, with nothing left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    store: SharedStore = S3Bucket() if options.store == "s3" else SharedDirectory(folder / "store")
    try:
        with _cluster(options, folder, store) as cluster:
            rounds = asyncio.run(_run(cluster, options, seed, folder))
    except AssertionError as error:
        print(f"NOT CLEAN with seed {seed}: {error}", flush=True)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; nothing was wrong so far with seed {seed}", flush=True)
        return 130
    print(f"clean: {rounds} rounds with seed {seed}")
    return 0


def _cluster(options: argparse.Namespace, folder: Path, store: SharedStore) -> Cluster:
    if options.embedded:
        return Cluster(folder, store, brokers=options.brokers, zookeeper=False)
    return SteeredCluster(folder, store, brokers=options.brokers, peer_lines=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.faults.chaos", description="Random faults for some time."
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no round after this time")
    parser.add_argument("--seed", type=int, help="choose as a former run did")
    parser.add_argument("--store", choices=["s3", "directory"], default="s3")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--embedded", action="store_true", help="one broker without ZooKeeper (with --brokers 1)")
    names = [kind.name for kind in KINDS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="FAULT", help=f"repeatable: {', '.join(names)}"
    )
    return parser


def _checked(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Ends the process if they are not valid."""
    options = parser.parse_args(arguments)
    if not options.seconds >= 0:
        parser.error("--seconds must be 0 or more")
    if options.brokers < 1 or (options.embedded and options.brokers != 1):
        parser.error("--brokers must be 1 or more, and 1 with --embedded")
    possible_names = [kind.name for kind in possible(_has(options))]
    if options.only and not set(options.only) <= set(possible_names):
        parser.error(f"--only: what can happen here is {', '.join(possible_names)}")
    return options


async def _run(cluster: Cluster, options: argparse.Namespace, seed: int, folder: Path) -> int:
    chance = random.Random(seed)
    kinds = [kind for kind in possible(_has(options)) if options.only is None or kind.name in options.only]
    deadline = time.monotonic() + options.seconds
    rounds = 0
    while rounds == 0 or time.monotonic() < deadline:
        rounds += 1
        print(f"round {rounds}", flush=True)
        if not options.embedded:
            await _enough_brokers(cluster)
        settings = _topics(rounds, embedded=options.embedded)
        async with topics_for_a_while(cluster, settings) as topics:
            await _round(cluster, topics, kinds, chance, folder / f"round-{rounds}", identified=not options.embedded)
    return rounds


def _has(options: argparse.Namespace) -> frozenset[Need]:
    has: set[Need] = {"s3"} if options.store == "s3" else set()
    return frozenset(has if options.embedded else {*has, "zookeeper", "replicated", "peer-lines"})


def _topics(number: int, *, embedded: bool) -> dict[str, dict[str, Any]]:
    """A stored and, in a cluster, a replicated topic."""
    settings: dict[str, dict[str, Any]] = {f"stored-{number}": {"segments": 3}}
    if not embedded:
        settings[f"replicated-{number}"] = {"segments": 3, "acks": "replicated", "replicas": REPLICAS}
    return settings


async def _enough_brokers(cluster: Cluster) -> None:
    """Add brokers if the last round removed some."""
    while len(cluster.brokers) < REPLICAS:
        await cluster.add()
    await cluster.wait_until_settled()


async def _round(
    cluster: Cluster,
    topics: tuple[str, ...],
    kinds: Sequence[FaultKind],
    chance: random.Random,
    folder: Path,
    *,
    identified: bool,
) -> None:
    load = mixed_workload(
        cluster, topics, seed=chance.randrange(2**32), identified=identified, processes_in=folder / "consumers"
    )
    scene = Scene(cluster, load, topics, chance, away_seconds=chance.choice(AWAY_SECONDS))
    async with load.running():
        for _ in range(FAULTS_A_ROUND):
            possible_now = [kind for kind in kinds if kind.can_strike(len(cluster.brokers))]
            if not possible_now:
                break
            kind = chance.choice(possible_now)
            await load.each_acknowledged(chance.randint(5, 50), timeout_seconds=RECOVER_SECONDS)
            with load.fault(kind.name) as fault:
                await kind.strike(scene)
                await cluster.wait_until_settled(*topics)
            await load.each_acknowledged(5, timeout_seconds=RECOVER_SECONDS)
            stall_seconds, brokers = longest_stall_seconds(load.history, fault), len(cluster.brokers)
            print(f"  {kind.name}: longest stall {stall_seconds:.2f} s, {brokers} brokers", flush=True)
        await cluster.wait_until_spread()
        print(f"  {await demand_clean(load, cluster, folder)}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
