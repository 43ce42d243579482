"""The public verdict: `make prove SECONDS=3600`, or `python -m tests.cluster.faults.prove --help`.

Rounds of every fault there is, at random, on a cluster of real processes under a mixed workload; then random trials on
single objects. A round that is not clean leaves its history and the brokers' logs, and the others go on. The figures go
into docs/reliability.md. The seed makes the same choices, though not the same timing.
"""

import argparse
import asyncio
import logging
import random
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.checker.history import History
from tests.cluster.checker.tally import Tally, tally
from tests.cluster.checker.verdict import judge
from tests.cluster.checker.workload import Workload
from tests.cluster.faults.faults import KINDS, FaultKind, possible
from tests.cluster.faults.mixed_workload import mixed_workload, topics_for_a_while
from tests.cluster.faults.object_faults import CLOCK_FAULTS, OBJECT_FAULTS, NothingToDamage
from tests.cluster.faults.object_trials import Outcome, run_trials
from tests.cluster.faults.proof_report import Proof, RoundFigures, write_report
from tests.cluster.faults.scene import Scene
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.stepped_cluster import SteppedCluster
from tests.support.store.shared_store import S3Bucket, SharedDirectory, SharedStore

REPORT = Path(__file__).parents[3] / "docs" / "reliability.md"
REPLICAS = 3
CLUSTER_FAULTS_A_ROUND, OBJECT_FAULTS_A_ROUND, CLOCK_STEPS_A_ROUND = 3, 16, 2
RECOVER_SECONDS = 90.0
AWAY_SECONDS = (5.0, 10.0)
ARROW_ROWS = 80
TRIALS_SHARE = 0.25
SECONDS_A_TRIAL = 1.5
MOST_BAD_ROUNDS = 5
SHOWN = 10
# Deleted files and old proofs are part of it: the grace period passes several times in a round. Little is kept in
# memory, since who reads from memory would not see what becomes of files.
SETTINGS = (
    *("--maintenance-interval", "1", "--rollup-age", "0", "--grace", "20"),
    *("--front-store-bytes", str(4 << 20), "--file-cache-bytes", str(1 << 20)),
)


@dataclass
class Rounds:
    """The rounds of one cluster."""

    cluster: Cluster
    folder: Path
    chance: random.Random
    kinds: Sequence[FaultKind]
    figures: list[RoundFigures] = field(default_factory=list)

    async def run(self, until_seconds: float) -> None:
        """Round after round, one at least; ends early after too many that were not clean."""
        number = 0
        while number == 0 or time.monotonic() < until_seconds:
            number += 1
            await self._enough_brokers()
            self.figures.append(await self._round(number))
            if sum(not each.tally.clean for each in self.figures) >= MOST_BAD_ROUNDS:
                return

    async def _enough_brokers(self) -> None:
        while len(self.cluster.brokers) < REPLICAS:
            await self.cluster.add()
        await self.cluster.wait_until_settled()

    async def _round(self, number: int) -> RoundFigures:
        settings = {
            f"stored-{number}": {"segments": 3},
            f"replicated-{number}": {"segments": 3, "acks": "replicated", "replicas": REPLICAS},
        }
        folder = self.folder / f"round-{number}"
        async with topics_for_a_while(self.cluster, settings) as topics:
            load = mixed_workload(
                self.cluster,
                topics,
                seed=self.chance.randrange(2**32),
                processes_in=folder / "consumers",
                arrow_rows=ARROW_ROWS,
            )
            trouble = ""
            try:
                await self._strike_and_read(load, topics)
            except AssertionError as error:
                trouble = f"stopped: {error}"
            complaints = [trouble] if trouble else []
            complaints += await asyncio.to_thread(self._judge, load.history)
            figures = RoundFigures(load.history.faults, tally(load.history, complaints), by_fault(load.history))
            print(f"round {number}: {summary_of(figures)}", flush=True)
            if complaints:
                folder.mkdir(parents=True, exist_ok=True)
                load.history.write(folder / "history.json")
                self.cluster.write_logs(folder / "logs")
                print(
                    "\n".join([f"  NOT CLEAN, see {folder}", *(f"  {each}" for each in complaints[:SHOWN])]), flush=True
                )
            return figures

    async def _strike_and_read(self, load: Workload, topics: tuple[str, ...]) -> None:
        scene = Scene(self.cluster, load, topics, self.chance, away_seconds=self.chance.choice(AWAY_SECONDS))
        async with load.running():
            await load.each_acknowledged(10, timeout_seconds=RECOVER_SECONDS)
            for kind in self._drawn():
                if kind.can_strike(len(self.cluster.brokers)):
                    await self._strike(kind, scene)
            await self.cluster.wait_until_spread()
            await load.read_to_the_end()
        load.history.predecessors = {
            topic: {each.id: each.predecessors for each in self.cluster.store.topic_state(topic).segments}
            for topic in topics
        }

    def _drawn(self) -> list[FaultKind]:
        """The faults of a round, in their order."""
        counts = (
            (self.kinds, CLUSTER_FAULTS_A_ROUND),
            (OBJECT_FAULTS, OBJECT_FAULTS_A_ROUND),
            (CLOCK_FAULTS, CLOCK_STEPS_A_ROUND),
        )
        drawn = [kind for kinds, count in counts for kind in self.chance.choices(kinds, k=count)]
        self.chance.shuffle(drawn)
        return drawn

    async def _strike(self, kind: FaultKind, scene: Scene) -> None:
        load = scene.load
        with load.fault(kind.name):
            try:
                await kind.strike(scene)
            except NothingToDamage:
                # It has not happened, so it does not count.
                load.history.faults.pop()
                return
            await scene.cluster.wait_until_settled(*scene.topics)
        await load.each_acknowledged(3, timeout_seconds=RECOVER_SECONDS)

    def _judge(self, history: History) -> list[str]:
        """What is wrong with the history, and with topic.json where no fault has touched it."""
        touched = {fault.key.split("/")[1] for fault in history.faults if fault.key.endswith("/topic.json")}
        records = [each for each in self.cluster.topic_complaints() if each.split(":")[0] not in touched]
        return judge(history) + records


def by_fault(history: History) -> dict[str, Tally]:
    """What was acknowledged and told from the beginning of each fault to that of the next, by name of the fault."""
    spans = [(f.started_seconds, f.name) for f in history.faults]
    ends = [start for start, _ in spans[1:]] + [float("inf")]
    figures: dict[str, Tally] = {}
    for (start, name), end in zip(spans, ends, strict=True):
        acknowledged = sum(
            len(request.messages)
            for request in history.requests
            for attempt in request.acknowledgements[:1]
            if start <= attempt.ended_seconds < end
        )
        told = sum(
            len(visit.told)
            for reader in history.readers
            for visit in reader.visits
            if start <= visit.ended_seconds < end
        )
        figures[name] = figures.get(name, Tally()) + Tally(acknowledged=acknowledged, told=told)
    return figures


def summary_of(figures: RoundFigures) -> str:
    """One line."""
    names = ", ".join(fault.name for fault in figures.faults)
    return f"{len(figures.faults)} faults ({names}); {figures.tally}"


def main(arguments: Sequence[str]) -> int:
    """Run, and write the report. Returns 0 if all was clean."""
    options = _options().parse_args(arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
    folder = Path(tempfile.mkdtemp(prefix="braidmq-prove-"))
    print(f"seed {seed}, in {folder}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    trials = options.trials if options.trials is not None else int(options.seconds * TRIALS_SHARE / SECONDS_A_TRIAL)
    until_seconds = began + max(options.seconds - trials * SECONDS_A_TRIAL, 0.0)
    try:
        rounds = _rounds(options.store, folder, seed, until_seconds)
        outcomes = _trials(seed, trials)
    except KeyboardInterrupt:
        print(f"interrupted with seed {seed}; no report", flush=True)
        return 130
    proof = Proof(seed, options.store, time.monotonic() - began, rounds, outcomes)
    if not options.no_report:
        write_report(options.report, proof)
    print("clean" if proof.clean else f"NOT CLEAN with seed {seed}", flush=True)
    return 0 if proof.clean else 1


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults.prove", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="about how long, trials included")
    parser.add_argument("--seed", type=int, help="choose as a former run did")
    parser.add_argument("--store", choices=["s3", "directory"], default="s3", help="the store of the cluster")
    parser.add_argument("--trials", type=int, help="trials on single objects, half of them on each store")
    parser.add_argument("--report", type=Path, default=REPORT, help="the page whose figures are replaced")
    parser.add_argument("--no-report", action="store_true", help="leave the page as it is")
    return parser


def _rounds(store_name: str, folder: Path, seed: int, until_seconds: float) -> list[RoundFigures]:
    store: SharedStore = S3Bucket() if store_name == "s3" else SharedDirectory(folder / "store")
    has = {"zookeeper", "replicated", *(["s3"] if store_name == "s3" else [])}
    kinds = [kind for kind in possible(frozenset(has)) if kind in KINDS]  # type: ignore[arg-type]
    with SteppedCluster(folder, store, arguments=SETTINGS) as cluster:
        rounds = Rounds(cluster, folder, random.Random(seed), kinds)
        asyncio.run(rounds.run(until_seconds))
    return rounds.figures


def _trials(seed: int, count: int) -> dict[str, list[Outcome]]:
    logging.disable(logging.CRITICAL)

    def report(outcome: Outcome) -> None:
        if outcome.complaints:
            print(f"{outcome.plan}; {outcome.damage}: {outcome.complaints[:3]}", flush=True)

    half = count // 2
    spans = {"directory": range(count - half), "s3": range(count - half, count)}
    return {store: asyncio.run(run_trials(store, seed, numbers, report)) for store, numbers in spans.items() if numbers}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
