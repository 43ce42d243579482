"""The simulation of `test_segment_log`, on machines whose clocks are wrong.

Wall clocks are set forward and back by two hours. Machines are paused, and both of their clocks stand still for longer
than the grace period and retention together, while the store and the others go on. Nothing acknowledged is lost or
moved, nothing is deleted before its grace period is over, and nothing expires before retention says so. The rules that
go by local clocks are put back one at a time; the simulation must find each.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pytest

from filer.clock import Clock, ManualClock, settle
from filer.format.segment_file import decode
from filer.keys import FileName
from filer.segment import segment_log
from filer.segment.live_files import FileFacts
from filer.segment.segment_log import SegmentRef, recover_index
from filer.segment.writer import ownership_proof
from filer.stores.decorators.faults import Fault, FaultKind, FaultPlan
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.store import Data, MakeData, Store
from filer.stores.store_time import Moment, StoreTime
from filer.topic.topic_config import parse_config
from filer.topic.topic_state import Segment, TopicState
from filer.upkeep.deletion_clock import DeletionClock
from filer.upkeep.retention import plan_retention
from tests.simulation.test_segment_log import ACTIONS, GRACE_SECONDS, Process, Simulation
from tests.support.thoroughness import seeds

# Those few notice deletion by the local clock, and messages that expire by their timestamps.
SEEDS = seeds(30, few=range(17, 30))
MOST_SEEDS = 30
"""Within so many schedules each of the old rules must be found out."""
RETENTION_SECONDS = 120.0
STEP_SECONDS = (-7200.0, 0.0, 7200.0)
ALL_CLOCKS = {"pause": 6, "step": 6, "retain": 6}


class HostClock(ManualClock):
    """A machine's clocks: they go with the true time, less what it was paused for; the wall clock may be set."""

    def __init__(self, true: ManualClock) -> None:
        super().__init__()
        self._true = true
        self.set_us = self.paused_us = 0

    def now_us(self) -> int:
        return self._true.now_us() - self.paused_us + self.set_us

    def monotonic_seconds(self) -> float:
        return (self._true.now_us() - self.paused_us) / 1e6

    async def sleep(self, seconds: float) -> None:
        await self._true.sleep(seconds)

    def entropy(self, size_bytes: int) -> bytes:
        return self._true.entropy(size_bytes)


class StallingFaults:
    """The faults of another plan, and while it `stalls`, each put waits in the network."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan, self.stalls = plan, False

    def draw(self, operation: str, key: str) -> Fault | None:
        drawn = self._plan.draw(operation, key)
        return Fault(FaultKind.HANG) if self.stalls and operation == "create" else drawn


class TooEarly(AssertionError):
    """Something was deleted, or has expired, before its time."""


class WitnessStore(ForwardingStore):
    """Knows by the true time when each file came and when it stopped to count, and checks each deletion by that."""

    def __init__(self, inner: Store, true: Clock) -> None:
        super().__init__(inner)
        self._true = true
        self._created_us: dict[tuple[str, FileName], int] = {}
        self._expired_us: dict[str, list[tuple[int, int]]] = {}

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        await self.inner.create(key, data, metadata=metadata)
        if (name := FileName.parse(key)) is not None:
            self._created_us.setdefault((_folder(key), name), self._true.now_us())

    async def delete(self, keys: Iterable[str]) -> None:
        names = tuple(keys)
        for key in names:
            if (name := FileName.parse(key)) is not None and not self._may_go(_folder(key), name):
                raise TooEarly(f"{key} was deleted before a grace period was over")
        await self.inner.delete(names)

    def _may_go(self, folder: str, name: FileName) -> bool:
        oldest_us = self._true.now_us() - GRACE_SECONDS * 1e6
        rolled_up = any(
            where == folder and other.end is not None and other != name and created_us <= oldest_us
            and other.base <= name.base and (name.end or name.base + 1) <= other.end
            for (where, other), created_us in self._created_us.items()
        )  # fmt: skip
        return rolled_up or any(
            name.base < end and (name.end or 0) <= end and expired_us <= oldest_us
            for end, expired_us in self._expired_us.get(folder, ())
        )

    def expire(self, folder: str, start: int, end: int) -> None:
        """Retention takes the messages `[start, end)`."""
        oldest_us = self._true.now_us() - RETENTION_SECONDS * 1e6
        for (where, name), created_us in self._created_us.items():
            if where == folder and name.end is None and start <= name.base < end and created_us > oldest_us:
                raise TooEarly(f"{folder}{name} expired before retention was over")
        self._expired_us.setdefault(folder, []).append((end, self._true.now_us()))


def _folder(key: str) -> str:
    return key[: key.rindex("/") + 1]


class ClockSimulation(Simulation):
    """The same brokers, on machines with clocks of their own."""

    actions: ClassVar[Mapping[str, int]] = {**ACTIONS, **ALL_CLOCKS}

    def __post_init__(self) -> None:
        self.starts: dict[int, int] = {}
        self.plans: dict[str, StallingFaults] = {}
        super().__post_init__()

    maintainer_clock: HostClock

    def clock_of_host(self, number: int) -> Clock:
        if number == -1:
            # Before the processes, which share this store.
            self.witness = self.memory = WitnessStore(self.memory, self.clock)
        return HostClock(self.clock)

    def start_of(self, segment: int) -> int:
        return self.starts.get(segment, 0)

    def faults_of(self, number: int) -> FaultPlan:
        self.plans[f"p{number}"] = StallingFaults(super().faults_of(number))
        return self.plans[f"p{number}"]

    async def _pause(self, process: Process) -> None:
        """A machine stands still in the middle of a put, for longer than grace and retention together, or nearly so.

        Others may stand still with it. The rest goes on, and takes the segment over.
        """
        plan = self.plans[process.name]
        for stalls in (False, True):
            await self._take_part(process)
            plan.stalls = stalls
            await self._publish(process)
            await settle()
        plan.stalls = False
        others = [each for each in self.processes if each is not process and self.chance.random() < 0.7]
        going = [each.clock for each in others]
        if self.chance.random() < 0.8:
            going.append(self.maintainer_clock)
            # Its time service has mended what an earlier pause did: else it would never delete.
            self.maintainer_clock.set_us = self.maintainer_clock.paused_us
        seconds = self.chance.choice([0.6, 1.1, 2.0]) * (GRACE_SECONDS + RETENTION_SECONDS)
        for _ in range(10):
            for clock in self._host_clocks():
                clock.paused_us += 0 if clock in going else int(seconds / 10 * 1e6)
            await self.clock.advance(seconds / 10)
            for other in others:
                await self._take_part(other)
                await self._publish(other)
                await settle()
            await self._upkeep(process)

    async def _take_part(self, process: Process) -> None:
        """Write on where the log ends, unless it does."""
        if process.writer is not None and process.writer.has_stopped:
            await self._crash(process)
        await self._join(process)
        await settle()

    async def _step(self, process: Process) -> None:
        clock = self.chance.choice(self._host_clocks())
        clock.set_us = int(self.chance.choice(STEP_SECONDS) * 1e6)
        if self.chance.random() < 0.5:
            # A time service mends what a pause has done.
            clock.set_us = clock.paused_us

    def _host_clocks(self) -> list[HostClock]:
        clocks = [self.maintainer_clock, *(process.clock for process in self.processes)]
        return [clock for clock in clocks if isinstance(clock, HostClock)]

    async def _retain(self, process: Process) -> None:
        """A round of retention by the maintainer, of some segment, as `RetentionRound` does it."""
        segment = self.lineage.segment(self.chance.randint(0, self.segment))
        ref = SegmentRef("events", segment.id)
        start = self.start_of(segment.id)
        index = await recover_index(self.memory, ref, start_offset=start)
        deletions = DeletionClock(self.memory, self.maintainer_clock, grace_seconds=GRACE_SECONDS)
        await deletions.look()
        if deletions.now_us is None:
            return
        starts = plan_retention(_topic_of(segment, start), {segment.id: index}, deletions.now_us)
        if segment.id in starts:
            self.witness.expire(_folder(ref.key(FileName(0))), start, starts[segment.id])
            self.starts[segment.id] = starts[segment.id]

    async def _read(self, ref: SegmentRef) -> Sequence[bytes | None]:
        """The values from the segment's start on, None for those before it."""
        index = await recover_index(self.memory, ref, start_offset=self.start_of(ref.segment))
        values: list[bytes | None] = [None] * (index.files[0].start if index.files else index.end)
        for facts in index.files:
            table = decode((await self.memory.get(ref.key(facts.name))).data)
            values += table.slice(facts.start - facts.base, facts.count)["value"].to_pylist()
        return values


def _topic_of(segment: Segment, start: int) -> TopicState:
    config = parse_config({"retention": {"seconds": RETENTION_SECONDS}})
    segment = segment.model_copy(update={"start_offset": start})
    return TopicState(
        topic="events", created_us=0, version=1, next_segment=segment.id + 1, config=config, segments=(segment,)
    )


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_schedule_and_any_clock(seed: int) -> None:
    await ClockSimulation(seed).run()


# -- the old rules -----------------------------------------------------------------------------------------------


def by_the_local_clock(time: StoreTime, clock: Clock, then: Moment) -> float:
    return clock.monotonic_seconds() - then.monotonic_seconds


async def look_at_the_wall(deletions: DeletionClock) -> None:
    deletions.now_us = deletions._clock.now_us()


def note_nothing_of_the_store(facts: FileFacts) -> int:
    return facts.last_timestamp_us


@contextmanager
def old_rule(rule: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if rule == "proofs age by the local clock":
            patch.setattr(ownership_proof, "age_seconds", by_the_local_clock)
            patch.setattr(segment_log, "age_seconds", by_the_local_clock)
        elif rule == "deletion goes by the local clock":
            patch.setattr(DeletionClock, "look", look_at_the_wall)
        elif rule == "messages expire by their timestamps":
            patch.setattr(FileFacts, "newest_us", property(note_nothing_of_the_store))
        yield


@pytest.mark.parametrize(
    ("rule", "first_seed"),
    [
        # A rare coincidence: one schedule in a hundred has it. The search begins near one that does.
        ("proofs age by the local clock", 80),
        ("deletion goes by the local clock", 0),
        ("messages expire by their timestamps", 0),
    ],
)
async def test_each_of_the_old_rules_is_found_out(rule: str, first_seed: int) -> None:
    with old_rule(rule):
        for seed in range(first_seed, first_seed + MOST_SEEDS):
            try:
                await ClockSimulation(seed).run()
            except AssertionError:
                return
    pytest.fail(f"nobody noticed that {rule}")
