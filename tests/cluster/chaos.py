"""Random faults for a time you name: `make chaos SECONDS=600`, or `python -m tests.cluster.chaos --help`.

Round after round, each on new topics: a mixed load, a few faults, a verdict. Brokers come and go for good as well, so
that there are 1 to 6 of them; a round begins with as many as its topics have replicas, if not more. The seed is
printed; the same seed makes the same choices, though not the same timing. A round that is not clean leaves its history
and the brokers' logs.
"""

import argparse
import asyncio
import contextlib
import random
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx

from tests.cluster.checker.stalls import longest_stall_seconds
from tests.cluster.faults import FaultKind, Need, Scene, possible
from tests.cluster.mixed_load import demand_clean, mixed_load
from tests.support.cluster import Cluster
from tests.support.shared_store import S3Bucket, SharedDirectory, SharedStore

FAULTS_A_ROUND = 4
REPLICAS = 3
RECOVER_SECONDS = 90.0


def main(arguments: Sequence[str]) -> int:
    """Run; 0 where every round was clean."""
    options = _options().parse_args(arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
    folder = Path(tempfile.mkdtemp(prefix="braidmq-chaos-"))
    print(f"seed {seed}, in {folder}", flush=True)
    # So that `kill` ends it as Ctrl-C does: with nothing left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    store: SharedStore = S3Bucket() if options.store == "s3" else SharedDirectory(folder / "store")
    try:
        with Cluster(folder, store, brokers=options.brokers, zookeeper=not options.embedded) as cluster:
            rounds = asyncio.run(_run(cluster, options, seed, folder))
    except AssertionError as error:
        print(f"NOT CLEAN with seed {seed}: {error}", flush=True)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; nothing was wrong so far with seed {seed}", flush=True)
        return 130
    print(f"clean: {rounds} rounds with seed {seed}")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos", description="Random faults for some time.")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no round after this time")
    parser.add_argument("--seed", type=int, help="choose as a former run did")
    parser.add_argument("--store", choices=["s3", "directory"], default="s3")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--embedded", action="store_true", help="one broker without ZooKeeper (with --brokers 1)")
    parser.add_argument("--only", action="append", metavar="FAULT", help="only faults of this name; may be repeated")
    return parser


async def _run(cluster: Cluster, options: argparse.Namespace, seed: int, folder: Path) -> int:
    chance = random.Random(seed)
    kinds = [kind for kind in possible(_has(options)) if options.only is None or kind.name in options.only]
    if not kinds:
        raise SystemExit(f"none of {options.only} can happen here: {[k.name for k in possible(_has(options))]}")
    deadline = time.monotonic() + options.seconds
    rounds = 0
    while rounds == 0 or time.monotonic() < deadline:
        rounds += 1
        print(f"round {rounds}", flush=True)
        async with _topics(cluster, rounds, embedded=options.embedded) as topics:
            await _round(cluster, topics, kinds, chance, folder / f"round-{rounds}", identified=not options.embedded)
    return rounds


def _has(options: argparse.Namespace) -> frozenset[Need]:
    has: set[Need] = {"s3"} if options.store == "s3" else set()
    return frozenset(has if options.embedded else {*has, "zookeeper", "replicated"})


@contextlib.asynccontextmanager
async def _topics(cluster: Cluster, number: int, *, embedded: bool) -> AsyncIterator[tuple[str, ...]]:
    """A stored and, in a cluster, a replicated topic, deleted when the round is over."""
    settings = {f"stored-{number}": {"segments": 3}}
    if not embedded:
        settings[f"replicated-{number}"] = {"segments": 3, "acks": "replicated", "replicas": REPLICAS}
        while len(cluster.brokers) < REPLICAS:
            await cluster.add()
        await cluster.wait_until_settled()
    for topic, each in settings.items():
        await cluster.create_topic(topic, **each)
    yield tuple(settings)
    for topic in settings:
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            (await client.delete(f"{cluster.urls[0]}/v1/topics/{topic}")).raise_for_status()


async def _round(
    cluster: Cluster,
    topics: tuple[str, ...],
    kinds: Sequence[FaultKind],
    chance: random.Random,
    folder: Path,
    *,
    identified: bool,
) -> None:
    await cluster.wait_until_settled(*topics)
    load = mixed_load(cluster, topics, seed=chance.randrange(2**32), identified=identified)
    scene = Scene(cluster, load, topics, chance)
    async with load.running():
        for _ in range(FAULTS_A_ROUND):
            possible_now = [kind for kind in kinds if kind.can_strike(len(cluster.brokers))]
            if not possible_now:
                break
            kind = chance.choice(possible_now)
            await load.each_acknowledged(chance.randint(5, 50))
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
