"""The real owner, sealer, recovery and upkeep of a segment under random schedules, from a seed.

Several processes believe to own the same segments, on a store that loses, delays and holds back their calls; they
stop at any time, and old names are rolled up and deleted under those that stand still. Whatever happens, what was
acknowledged is in the log once, at its offset, and what was refused is not. Some messages come with an id, and are sent
again and again to whoever owns a segment: they too are there once, where every answer said.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from filer.clock import Clock, ManualClock, settle
from filer.errors import BraidError, SegmentMoved, SegmentSealed, SequenceExpired
from filer.format.requests import Position, RequestId
from filer.format.segment_file import decode
from filer.segment.inheritance import read_inherited
from filer.segment.segment_log import Inherit, SegmentRef, recover_index, seal_at_end
from filer.segment.writer.segment_writer import SegmentWriter
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import Fault, FaultKind, FaultPlan, SeededFaults
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from tests.support.inline_executor import InlineExecutor
from tests.support.segment.sealed_chain import SealedChain
from tests.support.segment.segment_owners import GRACE_SECONDS, owner, single, stored_values
from tests.support.segment.upkeeps import upkeep_of
from tests.support.thoroughness import seeds
from tests.support.topic.segment_files import list_live

# Those few notice a writer that takes 412, or an unknown outcome, for success or failure, and one without windows.
SEEDS = seeds(60, few=range(25, 51))
STEPS = 150
PROCESSES = 3
RATES = {
    Fault(FaultKind.LOSE_ANSWER): 0.04,
    Fault(FaultKind.FAIL_BEFORE): 0.02,
    Fault(FaultKind.CONFLICT): 0.01,
    Fault(FaultKind.UNAVAILABLE): 0.01,
    Fault(FaultKind.DELAY, seconds=3): 0.03,
    Fault(FaultKind.HANG): 0.03,
    Fault(FaultKind.HANG_ANSWER): 0.03,
}
ACTIONS = {
    "publish": 60,
    "repeat": 40,
    "advance": 20,
    "release": 10,
    "join": 12,
    "seal": 2,
    "crash": 2,
    "upkeep": 8,
    "sleep": 4,
}


@dataclass
class Process:
    """One broker: its way to the store, and the writer it has, if any."""

    name: str
    store: FailingStore
    clock: Clock
    lives: int = 0
    writer: SegmentWriter | None = None
    busy: asyncio.Task[None] | None = None


@dataclass
class Published:
    """A message, the segment it went to first, and what its publisher was told each time it was sent."""

    value: bytes
    segment: int
    request: RequestId | None
    told: list[asyncio.Future[list[Position]]]

    @property
    def answers(self) -> list[Position]:
        """Where it is, as far as its publisher knows."""
        return [future.result()[0] for future in self.told if future.exception() is None]


@dataclass
class Simulation:
    """A chain of segments: whoever has sealed one opens the next."""

    actions: ClassVar[Mapping[str, int]] = ACTIONS

    seed: int
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.clock = ManualClock(seed=self.seed << 32)
        self.memory: Store = MemoryStore(clock=self.clock)
        self.published: list[Published] = []
        self.segment = 0
        self.lineage = SealedChain()
        self.maintainer_clock = self.clock_of_host(-1)
        self.processes = [self._process(number) for number in range(PROCESSES)]

    def _process(self, number: int) -> Process:
        store = FailingStore(self.memory, self.faults_of(number), clock=self.clock)
        return Process(f"p{number}", store, self.clock_of_host(number))

    def faults_of(self, number: int) -> FaultPlan:
        return SeededFaults(self.seed * PROCESSES + number, RATES)

    def clock_of_host(self, number: int) -> Clock:
        """The clock of the machine of that process, or of the maintainer for -1."""
        return self.clock

    def start_of(self, segment: int) -> int:
        """The segment's `start_offset` in topic.json."""
        return 0

    def note(self, what: str) -> None:
        self.history.append(f"{self.clock.now_us()} {what}")

    def ref(self) -> SegmentRef:
        return SegmentRef("events", self.segment)

    async def run(self) -> None:
        actions = self.chance.choices(list(self.actions), list(self.actions.values()), k=STEPS)
        for action in actions:
            process = self.chance.choice(self.processes)
            self.note(f"{action} {process.name}")
            await getattr(self, f"_{action}")(process)
            await settle()
        await self._end()

    async def _publish(self, process: Process) -> None:
        if process.writer is None:
            return
        for _ in range(self.chance.randint(1, 4)):
            number = len(self.published)
            request = RequestId("publisher", number) if self.chance.random() < 0.5 else None
            published = Published(b"message %d" % number, process.writer.ref.segment, request, [])
            self._send(process.writer, published)
            if published.told:
                self.published.append(published)

    async def _repeat(self, process: Process) -> None:
        """Send again what was sent before, answered or not."""
        named = [published for published in self.published if published.request is not None]
        for published in self.chance.sample(named[-20:], min(len(named), 3)):
            if process.writer is not None:
                self._send(process.writer, published)

    def _send(self, writer: SegmentWriter, published: Published) -> None:
        if published.request is None or writer.inheritance.complete:
            with contextlib.suppress(SegmentMoved, SegmentSealed, SequenceExpired):
                size_bytes = self.chance.randint(1, 40)
                published.told.append(writer.append(single(published.value), size_bytes, published.request))

    async def _advance(self, process: Process) -> None:
        await self.clock.advance(self.chance.choice([0.01, 0.1, 1, 5]))

    async def _sleep(self, process: Process) -> None:
        """So long that proofs of ownership grow old, and superseded files go."""
        await self.clock.advance(self.chance.choice([0.6, 1.1, 2.5]) * GRACE_SECONDS)

    async def _release(self, process: Process) -> None:
        process.store.release()

    async def _crash(self, process: Process) -> None:
        process.lives += 1
        for task in [process.busy] if process.busy else []:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if process.writer is not None:
            await process.writer.close()
        process.writer = process.busy = None

    async def _join(self, process: Process) -> None:
        """Write where the log of the newest segment ends, whoever else does."""
        await self._begin(process, self._open(process))

    async def _open(self, process: Process) -> None:
        ref = self.ref()
        index = await recover_index(process.store, ref, start_offset=self.start_of(ref.segment))
        if not index.sealed and process.writer is None:
            name = f"{process.name}.{process.lives}"
            process.writer = owner(
                process.store, process.clock, ref, index, broker=name, flush_bytes=60, inherit=self._heir(process, ref)
            )

    def _heir(self, process: Process, ref: SegmentRef) -> Inherit:
        heir = self.lineage.segment(ref.segment)
        return lambda: read_inherited(process.store, self.lineage, ref.topic, heir)

    async def _seal(self, process: Process) -> None:
        """Seal the newest segment, as its owner or in its owner's stead; the next one begins empty."""
        await self._begin(process, self._replace(process))

    async def _replace(self, process: Process) -> None:
        ref = self.ref()
        if process.writer is not None and process.writer.ref == ref:
            with contextlib.suppress(BraidError):
                await process.writer.seal()
        index = await seal_at_end(
            process.store, process.clock, ref, start_offset=self.start_of(ref.segment), writer=process.name,
            grace_seconds=GRACE_SECONDS, inherit=self._heir(process, ref),
        )  # fmt: skip
        assert index.sealed
        assert self.lineage.ends.setdefault(ref.segment, index.end) == index.end
        self.note(f"segment {ref.segment} sealed at {index.end}")
        self.segment = max(self.segment, ref.segment + 1)

    async def _begin(self, process: Process, work: Coroutine[object, object, None]) -> None:
        if process.busy is not None and not process.busy.done():
            work.close()
            return
        if process.writer is not None and process.writer.ref != self.ref():
            await process.writer.close()
            process.writer = None
        process.busy = asyncio.create_task(self._tried(work))

    async def _tried(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except BraidError as error:
            self.note(f"given up: {type(error).__name__}")

    async def _upkeep(self, process: Process) -> None:
        """A round of upkeep of some segment by a process that meets no faults."""
        ref = SegmentRef("events", self.chance.randint(0, self.segment))
        start_offset = self.start_of(ref.segment)
        index = await recover_index(self.memory, ref, start_offset=start_offset)
        upkeep = upkeep_of(self.memory, self.maintainer_clock, ref, index, InlineExecutor(), broker="maintainer")
        try:
            done = await upkeep.run(rollup_bytes=1 << 20, start_offset=start_offset)
            self.note(f"upkeep of {ref.segment}: {done.rollups} roll-ups, {done.deleted} deleted")
        except BraidError as error:
            self.note(f"upkeep failed: {type(error).__name__}")

    async def _end(self) -> None:
        """Let everything that still can happen, then look at what was made of it."""
        for _ in range(20):
            for process in self.processes:
                process.store.release()
            await self.clock.advance(2)
        for process in self.processes:
            await self._crash(process)
        for published in self.published:
            outcomes = [type(error).__name__ if (error := told.exception()) else "" for told in published.told]
            self.note(f"{published.value!r}: {outcomes}, {published.answers}")
        logs = [await self._read(SegmentRef("events", segment)) for segment in range(self.segment + 1)]
        self.note(f"{logs}")
        self._check(logs)

    def _check(self, logs: Sequence[Sequence[bytes | None]]) -> None:
        counts = Counter(value for values in logs for value in values if value is not None)
        assert not [value for value, count in counts.items() if count > 1], "doubled"
        for published in self.published:
            if all(isinstance(told.exception(), SegmentMoved) for told in published.told):
                assert not counts[published.value], f"{published.value!r} was refused and is there"
            for position in published.answers:
                found = logs[position.segment][position.offset : position.offset + position.count]
                # None is what retention has taken.
                assert list(found) in ([published.value], [None]), f"{published.value!r} is not at {position}"

    async def _read(self, ref: SegmentRef) -> Sequence[bytes | None]:
        values = await stored_values(self.memory, ref)
        assert await self._by_names(ref) == values
        return values

    async def _by_names(self, ref: SegmentRef) -> list[bytes]:
        """What a reader of files sees, which knows nothing but their names and offsets."""
        values: list[bytes] = []
        for live in await list_live(self.memory, ref):
            table = decode((await self.memory.get(ref.key(live.name))).data)
            for row in table.slice(live.start - live.name.base).to_pylist():
                assert row["_offset"] == len(values)
                values.append(row["value"])
        return values


async def simulated(seed: int) -> Simulation:
    simulation = Simulation(seed)
    await simulation.run()
    return simulation


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_schedule(seed: int) -> None:
    await simulated(seed)


async def test_the_same_seed_gives_the_same_history() -> None:
    assert (await simulated(7)).history == (await simulated(7)).history
    assert (await simulated(7)).history != (await simulated(8)).history
