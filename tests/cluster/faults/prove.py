"""The public verdict: `make prove SECONDS=3600`, or `python -m tests.cluster.faults.prove --help`.

Rounds of every fault there is, at random, on clusters of real processes under a mixed workload, on a directory and on
S3 in turn; then random trials on single objects. A round that is not clean leaves its history and the brokers' logs;
the others go on. The figures go into docs/reliability.md after each round, so that an end at any time leaves what was
seen. The seed makes the same choices, though not the same timing; `--seed N --first M` begins with round M of that run.
"""

import argparse
import asyncio
import logging
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.cluster.checker.tally import Tally
from tests.cluster.faults.object_trials import Outcome, commit, run_trials
from tests.cluster.faults.proof_report import Proof, RoundFigures, write_report
from tests.cluster.faults.prove_rounds import Draws, Rounds, legs
from tests.support.cluster.secure_cluster import SecureCluster
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.shared_store import S3Bucket, SharedDirectory, SharedStore

REPORT = Path(__file__).parents[3] / "docs" / "reliability.md"
# A round on S3 takes more than twice as long.
ROUNDS_A_LEG = {"directory": 2, "s3": 1}
STORES = tuple(ROUNDS_A_LEG)
TRIALS_SHARE = 0.08
SECONDS_A_TRIAL = 2.0
MOST_FAILED_STARTS = 3
# Where a minimum of faults or messages is asked for, rounds may take this much longer.
LONGER = 1.5
# Deleted files and old proofs are part of it: the grace period passes several times in a round. As little as possible
# is kept in memory, since who reads from memory does not see what becomes of files.
SETTINGS = (
    *("--maintenance-interval", "2", "--rollup-age", "0", "--grace", "30"),
    *("--front-store-bytes", str(1 << 20), "--file-cache-bytes", str(1 << 20)),
)


@dataclass(frozen=True)
class Wanted:
    """How long the rounds go on: so many seconds, and longer if there were fewer faults or messages than these."""

    seconds: float
    faults: int = 0
    messages: int = 0

    def is_reached(self, proof: Proof, passed_seconds: float) -> bool:
        """Whether no other round is to begin."""
        if not proof.rounds or passed_seconds < self.seconds:
            return False
        enough = len(proof.faults) >= self.faults and proof.total.acknowledged >= self.messages
        return enough or passed_seconds >= LONGER * self.seconds


class Prover:
    """One call of `make prove`: it fills a proof, and writes the page whenever there is more to tell."""

    def __init__(
        self, proof: Proof, wanted: Wanted, report: Path | None, folder: Path, *, is_secure: bool = False
    ) -> None:
        self.proof, self._wanted, self._report, self._folder = proof, wanted, report, folder
        self._is_secure = is_secure
        self._began = time.monotonic()

    def run(self, stores: Sequence[str], first: int, trials: int) -> None:
        """The rounds, one at least, then so many trials on each store in turn."""
        try:
            self._rounds(stores, first)
            self._trials(stores, trials)
            self.proof.ended = ""
        except KeyboardInterrupt:
            self.proof.ended = "interrupted"
        finally:
            self.write()

    def write(self) -> None:
        """Put the figures so far on the page."""
        self.proof.seconds = time.monotonic() - self._began
        if self._report is not None:
            write_report(self._report, self.proof)

    def _is_over(self) -> bool:
        return self._wanted.is_reached(self.proof, time.monotonic() - self._began)

    def _rounds(self, stores: Sequence[str], first: int) -> None:
        draws, failed = Draws(self.proof.seed, peer_lines=not self._is_secure), 0
        for store, numbers, before in legs({store: ROUNDS_A_LEG[store] for store in stores}, first):
            if self._is_over():
                return
            folder = self._folder / f"{store}-{numbers[0]}"
            try:
                with self._cluster(store, folder) as cluster:
                    rounds = Rounds(cluster, store, folder, draws, self._add)
                    asyncio.run(_meanwhile(cluster, rounds.run(numbers, before, self._is_over)))
            except Exception as error:  # a cluster that does not start is told, and the next one is tried
                failed += 1
                trouble = f"stopped: the cluster on {store}: {type(error).__name__}: {error}"[:500]
                self._add(RoundFigures(numbers[0], store, 0, [], Tally(stopped=1), {}, [trouble], ended=True))
                if failed == MOST_FAILED_STARTS:
                    return

    def _cluster(self, store: str, folder: Path) -> SteeredCluster:
        if self._is_secure:
            return SecureCluster(folder, _store(store, folder), arguments=SETTINGS)
        return SteeredCluster(folder, _store(store, folder), arguments=SETTINGS, peer_lines=True)

    def _add(self, figures: RoundFigures) -> None:
        self.proof.rounds.append(figures)
        print(f"  {len(figures.faults)} faults; {figures.tally}", flush=True)
        self.write()

    def _trials(self, stores: Sequence[str], count: int) -> None:
        logging.disable(logging.CRITICAL)
        share = count // len(stores)
        for index, store in enumerate(stores if share else ()):
            outcomes = self.proof.outcomes.setdefault(store, [])
            numbers = range(index * share, (index + 1) * share)

            def report(outcome: Outcome, outcomes: list[Outcome] = outcomes) -> None:
                outcomes.append(outcome)
                if outcome.complaints:
                    print(f"{outcome.plan}; {outcome.damage}: {outcome.complaints[:3]}", flush=True)

            asyncio.run(run_trials(store, self.proof.seed, numbers, report))
            self.write()


async def _meanwhile(cluster: SteeredCluster, rounds: Coroutine[Any, Any, None]) -> None:
    """The rounds, while a secure cluster has its secrets changed. Raises what keeps them from being changed."""
    if not isinstance(cluster, SecureCluster):
        await rounds
        return
    rotating, running = asyncio.create_task(cluster.rotate_again_and_again()), asyncio.create_task(rounds)
    try:
        await asyncio.wait([rotating, running], return_when=asyncio.FIRST_COMPLETED)
        if rotating.done():
            await rotating
        await running
    finally:
        for task in (rotating, running):
            task.cancel()
        await asyncio.gather(rotating, running, return_exceptions=True)
        print(f"  changed meanwhile: {cluster.rotations}", flush=True)


def _store(name: str, folder: Path) -> SharedStore:
    return S3Bucket() if name == "s3" else SharedDirectory(folder / "store")


def main(arguments: Sequence[str]) -> int:
    """Run, and write the report. Returns 0 if all was clean."""
    options = _options().parse_args(arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
    folder = Path(tempfile.mkdtemp(prefix="braidmq-prove-"))
    print(f"seed {seed}, in {folder}", flush=True)
    _end_as_by_ctrl_c()
    stores = STORES if options.store == "both" else (options.store,)
    # Single objects know nothing of who comes in.
    share = 0.0 if options.secure else TRIALS_SHARE
    trials = options.trials if options.trials is not None else int(options.seconds * share / SECONDS_A_TRIAL)
    rounds_seconds = max(options.seconds - trials * SECONDS_A_TRIAL, 0.0)
    wanted = Wanted(rounds_seconds, options.at_least_faults, options.at_least_messages)
    proof = Proof(seed, commit(), ended="still running")
    report = None if options.no_report or options.secure else options.report
    Prover(proof, wanted, report, folder, is_secure=options.secure).run(stores, options.first, trials)
    print(f"{len(proof.faults)} faults, {proof.total.acknowledged} acknowledged messages", flush=True)
    if proof.ended:
        print(f"{proof.ended} with seed {seed}", flush=True)
        return 130
    if not proof.clean:
        print(f"NOT CLEAN with seed {seed}", flush=True)
        return 1
    shutil.rmtree(folder)
    print("clean", flush=True)
    return 0


def _end_as_by_ctrl_c() -> None:
    """SIGTERM and SIGINT end the running round in order, also in the background of a shell, which ignores SIGINT."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interrupt)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults.prove", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="about how long, trials included")
    parser.add_argument("--at-least-faults", type=int, default=0, help="go on, half as long again at most, until then")
    parser.add_argument("--at-least-messages", type=int, default=0, help="likewise")
    parser.add_argument("--seed", type=int, help="choose as a former run did")
    parser.add_argument("--first", type=int, default=1, help="the round to begin with")
    parser.add_argument("--store", choices=["both", *STORES], default="both", help="the stores of the clusters")
    parser.add_argument("--trials", type=int, help="trials on single objects, as many on each store")
    parser.add_argument("--report", type=Path, default=REPORT, help="the page whose figures are replaced")
    parser.add_argument(
        "--secure", action="store_true", help="TLS, tokens and keys everywhere, which change meanwhile; no page"
    )
    parser.add_argument("--no-report", action="store_true", help="leave the page as it is")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
