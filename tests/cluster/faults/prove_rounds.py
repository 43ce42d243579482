"""Rounds of every fault there is, at random, on one cluster of real processes under a mixed workload."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.checker.history import History
from tests.cluster.checker.tally import tally
from tests.cluster.checker.verdict import judge
from tests.cluster.checker.workload import Workload
from tests.cluster.faults.decks import Deck
from tests.cluster.faults.faults import KINDS, FaultKind, NothingHappened, possible
from tests.cluster.faults.mixed_workload import mixed_workload, topics_for_a_while
from tests.cluster.faults.object_faults import CLOCK_FAULTS, OBJECT_FAULTS
from tests.cluster.faults.proof_report import RoundFigures, by_fault
from tests.cluster.faults.scene import Scene
from tests.support.cluster.cluster import Cluster

REPLICAS = 3
CLUSTER_FAULTS_A_ROUND, OBJECT_FAULTS_A_ROUND, CLOCK_STEPS_A_ROUND = 4, 32, 2
RECOVER_SECONDS = 90.0
# Consumers that are given time to read all of it are late otherwise, where the machine is slow, and count as wrong.
FINISH_SECONDS = 240.0
AWAY_SECONDS = (5.0, 10.0)
CAPACITY = 400_000
SHOWN = 10


@dataclass(frozen=True)
class Pace:
    """How fast a round publishes: the rows of an Arrow request, and the pause between requests of a producer."""

    arrow_rows: int
    pause_seconds: float


# The S3 server answers a few hundred requests a second, and each file costs several: fewer and larger ones there.
PACES = {"directory": Pace(150, 0.2), "s3": Pace(300, 0.5)}


@dataclass(frozen=True)
class Draws:
    """The choices of all rounds of a run, which its seed alone determines: any round can be repeated.

    Without `peer_lines` no broker's address refuses the others alone.
    """

    seed: int
    peer_lines: bool = True

    def round_seed(self, number: int) -> int:
        """The seed of all choices within a round."""
        return random.Random(f"{self.seed} {number}").randrange(2**32)

    def faults(self, store: str, rounds_before: int) -> list[FaultKind]:
        """The faults of a round, in their order, after so many others on that store.

        Each kind comes up as often as any other of its sort.
        """
        has = {"zookeeper", "replicated"}
        has |= {name for name, there in (("peer-lines", self.peer_lines), ("s3", store == "s3")) if there}
        kinds = [kind for kind in possible(frozenset(has)) if kind in KINDS]  # type: ignore[arg-type]
        chance = random.Random(f"{self.seed} {store}")
        decks = [
            (Deck(kinds, chance), CLUSTER_FAULTS_A_ROUND),
            (Deck(OBJECT_FAULTS, chance), OBJECT_FAULTS_A_ROUND),
            (Deck(CLOCK_FAULTS, chance), CLOCK_STEPS_A_ROUND),
        ]
        for _ in range(rounds_before + 1):
            drawn = [kind for deck, count in decks for kind in deck.draw(count)]
        chance.shuffle(drawn)
        return drawn


@dataclass
class Rounds:
    """The rounds of one cluster. Each is told to `report` when it has ended, also where it was interrupted."""

    cluster: Cluster
    store: str
    folder: Path
    draws: Draws
    report: Callable[[RoundFigures], None]

    async def run(self, numbers: Sequence[int], rounds_before: int, is_over: Callable[[], bool]) -> None:
        """These rounds, as long as it is not over. After one that did not go on, what follows needs a new cluster."""
        for index, number in enumerate(numbers):
            if is_over():
                return
            kinds = self.draws.faults(self.store, rounds_before + index)
            one = Round(
                self.cluster, self.store, number, self.draws.round_seed(number), self.folder / f"round-{number}"
            )
            try:
                await one.run(kinds)
            finally:
                self.report(one.figures())
            if one.troubles:
                return


@dataclass
class Round:
    """One round: topics of its own, a workload, faults, and the verdict."""

    cluster: Cluster
    store: str
    number: int
    seed: int
    folder: Path
    troubles: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _load: Workload | None = None
    _judged: bool = False

    async def run(self, kinds: Sequence[FaultKind]) -> None:
        """Run and judge. An error of the harness, or a cluster that does not go on, is a complaint like any other."""
        print(f"round {self.number} on {self.store}, seed {self.seed}", flush=True)
        try:
            async with AsyncExitStack() as stack:
                topics = await self._create_topics(stack)
                self._load = self._workload(topics)
                await self._strike_and_read(self._load, topics, kinds)
                await self.judge(self._load.history)
                if self.complaints:
                    # The topics stay, for whoever looks into it.
                    stack.pop_all()
        except Exception as error:  # whatever it is, the other rounds go on, and the page tells of it
            self.troubles.append(f"stopped: {type(error).__name__}: {error}"[:500])
            if self._load is not None and not self._judged:
                await self.judge(self._load.history)
        if self.troubles or self.complaints:
            self._leave()

    @property
    def topics(self) -> tuple[str, str]:
        """Its topics: one acknowledges what is stored, the other what is replicated."""
        return f"stored-{self.number}", f"replicated-{self.number}"

    async def _create_topics(self, stack: AsyncExitStack) -> tuple[str, ...]:
        while len(self.cluster.brokers) < REPLICAS:
            await self.cluster.add()
        stored, replicated = self.topics
        settings = {
            stored: {"segments": 3},
            replicated: {"segments": 3, "acks": "replicated", "replicas": REPLICAS},
        }
        return await stack.enter_async_context(topics_for_a_while(self.cluster, settings))

    def _workload(self, topics: Sequence[str]) -> Workload:
        pace = PACES[self.store]
        return mixed_workload(
            self.cluster,
            topics,
            seed=self.seed,
            processes_in=self.folder / "consumers",
            arrow_rows=pace.arrow_rows,
            pause_seconds=pace.pause_seconds,
            finish_seconds=FINISH_SECONDS,
            capacity=CAPACITY,
        )

    async def _strike_and_read(self, load: Workload, topics: tuple[str, ...], kinds: Sequence[FaultKind]) -> None:
        chance = random.Random(self.seed)
        scene = Scene(self.cluster, load, topics, chance, away_seconds=chance.choice(AWAY_SECONDS))
        async with load.running():
            await load.each_acknowledged(10, timeout_seconds=RECOVER_SECONDS)
            for past in scene.pasts.values():
                await asyncio.to_thread(past.remember)
            # What has found nothing to break, such as a seal before any segment was sealed, is tried again in the end.
            again = [kind for kind in kinds if not await self._strike(kind, scene)]
            for kind in again:
                await self._strike(kind, scene)
            await self.cluster.wait_until_spread()
            await load.read_to_the_end()
        for topic in topics:
            state = await asyncio.to_thread(self.cluster.store.topic_state, topic)
            load.history.predecessors[topic] = {each.id: each.predecessors for each in state.segments}

    async def _strike(self, kind: FaultKind, scene: Scene) -> bool:
        """Whether it has happened. If not, it does not count."""
        if not kind.can_strike(len(self.cluster.brokers)):
            return False
        load = scene.load
        began_seconds = load.now()
        with load.fault(kind.name) as fault:
            try:
                await kind.strike(scene)
            except NothingHappened as nothing:
                load.history.faults.pop()
                print(f"  {kind.name}: {nothing}", flush=True)
                return False
            struck_seconds = load.now()
            await scene.cluster.wait_until_settled(*scene.topics)
        await load.each_acknowledged(1, timeout_seconds=RECOVER_SECONDS)
        took = f"{struck_seconds - began_seconds:.1f} s, all well after {load.now() - began_seconds:.1f} s"
        print(f"  {kind.name}: {took}{f'; {fault.detail}' if fault.detail else ''}", flush=True)
        return True

    async def judge(self, history: History) -> None:
        """What is wrong with the history, and with topic.json where no fault has touched it.

        The cluster knows the records of rounds before this one too. They were judged then, by the faults of that time.
        """
        touched = {fault.key.split("/")[1] for fault in history.faults if fault.key.endswith("/topic.json")}
        records = await asyncio.to_thread(self.cluster.topic_complaints)
        self.complaints += await asyncio.to_thread(judge, history)
        untouched = {*self.topics} - touched
        self.complaints += [each for each in records if each.split(":")[0] in untouched]
        self._judged = True

    def figures(self) -> RoundFigures:
        """What has happened so far. Without a verdict where the round was interrupted before it."""
        history = History() if self._load is None else self._load.history
        complaints = [*self.troubles, *self.complaints]
        counted = tally(history, complaints)
        ended = self._judged or bool(self.troubles)
        return RoundFigures(
            self.number, self.store, self.seed, history.faults, counted, by_fault(history), complaints, ended
        )

    def _leave(self) -> None:
        """Leave the history and the brokers' logs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._load is not None:
            self._load.history.write(self.folder / "history.json")
        self.cluster.write_logs(self.folder / "logs")
        shown = [*self.troubles, *self.complaints][:SHOWN]
        print("\n".join([f"  NOT CLEAN, see {self.folder}", *(f"  {each}" for each in shown)]), flush=True)


def legs(rounds_a_leg: Mapping[str, int], first: int) -> Iterator[tuple[str, list[int], int]]:
    """For each leg, which has a cluster of its own: its store, its rounds, and the rounds before on that store.

    The stores take turns, so that an end at any time has seen all of them; `rounds_a_leg` names them. `first` is the
    round to begin with.
    """
    number, before = 1, dict.fromkeys(rounds_a_leg, 0)
    while True:
        for store, count in rounds_a_leg.items():
            numbers = [each for each in range(number, number + count) if each >= first]
            if numbers:
                yield store, numbers, before[store] + count - len(numbers)
            before[store] += count
            number += count
