"""The real loads under random schedules, from a seed: reserved, written, committed, given up and run again.

Several brokers, each as stale as it likes, do any step of any load, publish, split, merge, roll, roll up and delete, on
a store that loses, delays and holds back their calls; they stop at any call, or are thought to be gone and go on.
Clients write late, and twice. Whatever happens: of a load that is adopted each message is there once, of any other
none; a commit that was answered stays so, and is answered so again; what was acknowledged is where it was said to be;
and each key's messages stand in the order in which they came, the load between those before and those after it.
"""

import asyncio
import os
import random
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from filer import keys
from filer.bulk_load.load_check import FileClaim
from filer.bulk_load.load_files import LoadFile, load_files
from filer.bulk_load.load_segment import LoadSegment
from filer.clock import ManualClock, settle
from filer.errors import BraidError, LoadRefused, ObjectExists, OutcomeUnknown, SegmentMoved
from filer.format.requests import Position, RequestId
from filer.format.segment_file import decode
from filer.keys import FileName
from filer.segment.next_file import Single
from filer.segment.producer_windows import EXPIRY_US
from filer.segment.segment_log import SegmentRef, recover_index
from filer.slots import slot_of
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import Fault, FaultKind, SeededFaults
from filer.stores.memory_store import MemoryStore
from filer.topic.catalogue import Catalogue
from filer.topic.reservations import LIFETIME_US
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Load, TopicState
from leader.membership.coordinator import BrokerInfo
from leader.policy.cut_points import Cut
from leader.transitions import new_topic
from mq.base.errors import Conflict, NotFound, Repeatable, TransitionUnderWay
from mq.topic.topic_reader import TopicReader
from tests.support.broker.killed_leaders import TOPIC, Chronicle
from tests.support.broker.simulated_broker import GRACE_SECONDS, SimulatedBroker
from tests.support.thoroughness import few_or_many

SEEDS = int(os.environ.get("BRAIDMQ_TEST_SEEDS", few_or_many(6, 10)))
STEPS = 200
BROKERS = 3
LOADS = ("x", "y", "z")
KEYS = [b"key-%d" % number for number in range(6)]
ROWS = 4
"""Of each key in a load."""
RATES = {
    Fault(FaultKind.LOSE_ANSWER): 0.02,
    Fault(FaultKind.FAIL_BEFORE): 0.01,
    Fault(FaultKind.CONFLICT): 0.01,
    Fault(FaultKind.DELAY, seconds=3): 0.02,
    Fault(FaultKind.HANG): 0.02,
    Fault(FaultKind.HANG_ANSWER): 0.02,
}
ACTIONS = {
    "publish": 40,
    "repeat": 20,
    "refresh": 20,
    "advance": 20,
    "release": 8,
    "reserve": 12,
    "write": 80,
    "commit": 24,
    "abandon": 1,
    "split_or_merge": 8,
    "repair": 10,
    "keep": 8,
    "crash": 2,
    "expel": 1,
    "look": 4,
    "sleep": 2,
    "age": 0.3,
}


Row = tuple[bytes, bytes, Position]
"""Key, value and place of a message."""


@dataclass
class Process:
    """One place where brokers live, one after the other, and its way to the store."""

    name: str
    store: FailingStore
    lives: int = 0
    broker: SimulatedBroker | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass
class Published:
    """A message, when it was sent first, and what its publisher was told each time it was sent, and when."""

    key: bytes
    value: bytes
    sent: int
    sent_us: int
    request: RequestId | None
    told: list[Position] = field(default_factory=list)
    told_at: float = float("inf")
    moved: int = 0
    tries: int = 0


@dataclass
class Run:
    """One run of a load by a client: its reservation, the files it writes, and what it was told."""

    load: Load
    files: list[LoadFile]
    left: list[LoadFile]
    gave_up: bool = False
    under_way: int = 0

    @property
    def claims(self) -> list[FileClaim]:
        return [FileClaim(f.segment, f.base_offset, f.count, f.data.size) for f in self.files]


@dataclass
class Committing:
    """The commits of one reservation: when the first was asked for and the first answered, and the answer."""

    asked: int
    answered: float = float("inf")
    answer: Load | None = None


def rows_of(load: str, *, more: bool) -> pa.Table:
    """The messages of a load, `more` of them in a run whose input is another."""
    numbers = [(key, number) for number in range(ROWS + more) for key in KEYS]
    return pa.table(
        {
            "key": [key for key, _ in numbers],
            "value": [b"%s %s %d" % (load.encode(), key, number) for key, number in numbers],
        }
    )


@lru_cache
def files_of(load: Load, *, more: bool, file_bytes: int) -> list[LoadFile]:
    """The files of a run of a load, which may be its input's or another's, and cut in one way or another."""
    rows, made = rows_of(load.id, more=more), list[LoadFile]()
    slots = [slot_of(key) for key in rows["key"].to_pylist()]
    for segment, (start, stop) in load.ranges.items():
        about = LoadSegment(load.id, segment, start, stop, load.reserved_us)
        mine = rows.filter(pa.array([start <= slot < stop for slot in slots]))
        made += load_files([mine], about, file_bytes=file_bytes)
    return made


@dataclass
class Simulation:
    """A topic, brokers, publishers and the clients of loads. `events` counts what happens, as a clock of its own."""

    seed: int
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.clock = ManualClock(seed=self.seed << 32)
        self.memory = Chronicle(MemoryStore(clock=self.clock))
        self.alive: dict[str, BrokerInfo] = {}
        self.processes = [self._process(number) for number in range(BROKERS + 1)]
        self.client = self.processes.pop()
        self.published: list[Published] = []
        self.runs: list[Run] = []
        self.committing: dict[int, Committing] = {}
        self.given_up: set[int] = set()
        self.failures: list[Exception] = []
        self.sending: list[asyncio.Task[None]] = []
        self.events = 0

    def _process(self, number: int) -> Process:
        faults = SeededFaults(self.seed * (BROKERS + 1) + number, RATES)
        return Process(f"p{number}", FailingStore(self.memory, faults, clock=self.clock))

    def note(self, what: str) -> None:
        self.events += 1
        self.history.append(f"{self.events} {self.clock.now_us()} {what}")

    async def run(self) -> "Simulation":
        for process in self.processes:
            self._start(process)
        opened = self.chance.randint(1, 3)
        owners = list(self.alive)
        state = new_topic(
            TOPIC, TopicConfig(), opened, lambda n: (owners[n % BROKERS],), now_us=self.clock.now_us()
        )  # fmt: skip
        assert await Catalogue(self.memory, self.clock).create(state)
        for action in self.chance.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS):
            process = self.chance.choice(self.processes)
            self.note(f"{action} {process.name}")
            await getattr(self, f"_{action}")(process)
            await settle()
            self._check_nothing_failed()
        await self._end()
        return self

    def _check_nothing_failed(self) -> None:
        if self.failures:
            raise self.failures[0]

    def _start(self, process: Process) -> None:
        process.lives += 1
        broker = f"{process.name}.{process.lives}"
        process.broker = SimulatedBroker(broker, process.store, self.clock, self.alive)

    def _begin(self, process: Process, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._tried(process, work))
        process.tasks.append(task)
        task.add_done_callback(process.tasks.remove)
        return task

    async def _tried(self, process: Process, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BraidError as error:
            self.note(f"{process.name}: {type(error).__name__}: {error}")
        except Exception as error:
            self.failures.append(error)

    # -- brokers -------------------------------------------------------------------------------------------

    async def _crash(self, process: Process) -> None:
        """Another life begins at once, with nothing of what the one before knew."""
        await self._stop(process)
        self._start(process)

    async def _stop(self, process: Process) -> None:
        for task in list(process.tasks):
            task.cancel()
        await asyncio.gather(*process.tasks, return_exceptions=True)
        if process.broker is not None:
            await process.broker.close()
            process.broker = None

    async def _expel(self, process: Process) -> None:
        """The others think that it is gone; it goes on."""
        assert process.broker is not None
        if len(self.alive) > 1:
            self.alive.pop(process.broker.id, None)

    async def _refresh(self, process: Process) -> None:
        assert process.broker is not None
        self._begin(process, process.broker.topics.refresh(TOPIC))

    async def _repair(self, process: Process) -> None:
        assert process.broker is not None
        self._begin(process, process.broker.repair(TOPIC))

    async def _keep(self, process: Process) -> None:
        assert process.broker is not None
        self._begin(process, process.broker.maintenance.round())

    async def _split_or_merge(self, process: Process) -> None:
        assert process.broker is not None
        runtime = process.broker.topics.get(TOPIC)
        if runtime is None or not (opened := runtime.state.open_segments):
            return
        segment = self.chance.choice(opened)
        kind = self.chance.choice(["split", "merge", "roll"])
        if kind == "roll":
            self._begin(process, process.broker.executor.give_successors(TOPIC, [segment.id], "roll"))
            return
        middle = (segment.start_slot + segment.stop_slot) // 2
        cuts = {segment.id: Cut((middle,))} if kind == "split" and middle > segment.start_slot else {}
        pairs = [(s.id, n.id) for s, n in pairwise(opened)][:1] if not cuts else []
        self._begin(process, self._carry_out(process.broker, cuts, pairs))

    async def _carry_out(self, broker: SimulatedBroker, cuts: Mapping[int, Cut], pairs: list[tuple[int, int]]) -> None:
        await broker.executor.split_or_merge(TOPIC, cuts, pairs)

    # -- time ----------------------------------------------------------------------------------------------

    async def _advance(self, process: Process) -> None:
        await self.clock.advance(self.chance.choice([0.01, 0.1, 1, 5]))

    async def _release(self, process: Process) -> None:
        self.chance.choice([*self.processes, self.client]).store.release()

    async def _sleep(self, process: Process) -> None:
        """So long that superseded files go."""
        await self.clock.advance(self.chance.choice([0.6, 1.1]) * GRACE_SECONDS)

    async def _age(self, process: Process) -> None:
        """So long that loads expire. What is known of producers does too, so nobody goes on with what it had sent."""
        for task in self.sending:
            task.cancel()
        await asyncio.gather(*self.sending, return_exceptions=True)
        await self.clock.advance(LIFETIME_US // 1_000_000)

    # -- publishers ----------------------------------------------------------------------------------------

    async def _publish(self, process: Process) -> None:
        number = len(self.published)
        key = self.chance.choice(KEYS)
        request = RequestId("publisher", number) if self.chance.random() < 0.7 else None
        published = Published(key, b"published %d" % number, self.events, self.clock.now_us(), request)
        self.published.append(published)
        await self._send(process, published)

    async def _repeat(self, process: Process) -> None:
        """Send again what was sent before, answered or not, as long as it is known."""
        since_us = self.clock.now_us() - EXPIRY_US // 2
        named = [each for each in self.published if each.request is not None and each.sent_us > since_us]
        if named:
            await self._send(process, self.chance.choice(named[-12:]))

    async def _send(self, process: Process, published: Published) -> None:
        """To whoever owns the slot by what is known there; else it is as if it had not been sent."""
        assert process.broker is not None
        runtime = process.broker.topics.get(TOPIC)
        if runtime is None:
            return
        slot = slot_of(published.key)
        owned = next((s for s in runtime.state.open_segments if s.start_slot <= slot < s.stop_slot), None)
        if owned is not None and owned.id in runtime.writers:
            published.tries += 1
            task = self._begin(process, self._sent(process.broker, published))
            self.sending.append(task)
            task.add_done_callback(self.sending.remove)

    async def _sent(self, broker: SimulatedBroker, published: Published) -> None:
        message = Single(published.key, published.value, None, None)
        try:
            position = await broker.topics[TOPIC].publisher.publish_single(message, 40, published.request)
        except SegmentMoved:
            published.moved += 1
            raise
        published.told.append(position)
        self.note(f"{published.value!r} is at {position}")
        published.told_at = min(published.told_at, self.events)

    # -- loads ---------------------------------------------------------------------------------------------

    async def _reserve(self, process: Process) -> None:
        """A client begins a run of a load, or begins anew: its input may be another, or cut in another way."""
        self._begin(process, self._reserved(process, self.chance.choice(LOADS), self.chance.randint(1, 3)))

    async def _reserved(self, process: Process, load_id: str, segments: int) -> None:
        assert process.broker is not None
        load, made = await process.broker.loads.reserve(TOPIC, load_id, segments)
        self.note(f"{process.name}: {load_id} has {load.segments}, {'made' if made else 'known'}")
        more = self.chance.random() < 0.1
        files = files_of(load, more=more, file_bytes=self.chance.choice([300, 300, 300, 120]))
        self.runs.append(Run(load, files, self.chance.sample(files, len(files))))

    async def _write(self, process: Process) -> None:
        """Some run writes its next file."""
        if runs := [run for run in self.runs[-6:] if run.left and not run.gave_up]:
            run = self.chance.choice(runs)
            self._begin(self.client, self._written(run, run.left.pop()))

    async def _written(self, run: Run, file: LoadFile) -> None:
        run.under_way += 1
        key = keys.segment_file(TOPIC, file.segment, FileName(file.base_offset))
        while True:
            try:
                await self.client.store.create(key, file.data)
                break
            except ObjectExists:
                if (await self.memory.get(key)).data != file.data.to_pybytes():
                    self.note(f"{key} is another's")
                    run.gave_up = True
                    return
                break
            except OutcomeUnknown:
                await self.clock.sleep(1)
        self.note(f"{key} is written")
        run.under_way -= 1

    async def _commit(self, process: Process) -> None:
        """A client asks for the commit once its files are there, and at any time again."""
        if runs := [run for run in self.runs if not run.left and not run.under_way and not run.gave_up]:
            self._begin(process, self._committed(process, self.chance.choice(runs[-4:])))

    async def _committed(self, process: Process, run: Run) -> None:
        assert process.broker is not None
        first = run.load.first_segment
        told = self.committing.setdefault(first, Committing(self.events))
        was_adopted = await self._adopted(first)
        try:
            load = await process.broker.loads.commit(TOPIC, run.load.id, run.claims)
        except (Repeatable, OutcomeUnknown, TransitionUnderWay):
            raise
        except (LoadRefused, Conflict, NotFound) as error:
            assert was_adopted is None, f"the commit of {first} was answered with {error!r}, and it was adopted"
            raise
        self.note(f"{process.name}: commit of {first}: {load}")
        if load.first_segment == first:
            assert told.answer in (None, load), "another answer"
            told.answer, told.answered = load, min(told.answered, self.events)
        assert load.first_segment not in self.given_up

    async def _adopted(self, first: int) -> Load | None:
        state = await self._state()
        return next((load for load in state.loads if load.first_segment == first and load.version is not None), None)

    async def _abandon(self, process: Process) -> None:
        if self.runs:
            self._begin(process, self._abandoned(process, self.chance.choice(self.runs).load.id))

    async def _abandoned(self, process: Process, load_id: str) -> None:
        assert process.broker is not None
        before = (await self._state()).loads
        await process.broker.loads.abandon(TOPIC, load_id)
        after = {load.first_segment for load in (await self._state()).loads if not load.abandoned}
        self.given_up |= {load.first_segment for load in before if load.id == load_id} - after

    # -- what came of it -----------------------------------------------------------------------------------

    async def _state(self) -> TopicState:
        record = await Catalogue(self.memory, self.clock).read(TOPIC)
        assert record is not None
        return record.state

    async def _look(self, process: Process) -> None:
        await self._check()

    async def _end(self) -> None:
        """Let everything that still can happen, then look at what was made of it."""
        for _ in range(20):
            for process in [*self.processes, self.client]:
                process.store.release()
            await self.clock.advance(2)
        for process in [*self.processes, self.client]:
            await self._stop(process)
        self._check_nothing_failed()
        self.note("the end")
        rows = await self._check()
        last = SimulatedBroker("last", self.memory, self.clock, self.alive)
        await last.repair(TOPIC)
        after = await self._check()
        assert set(rows) <= set(after), "whoever takes up what is under way takes nothing away"
        await self._check_reader(last, after)
        await last.close()
        self.memory.check()
        self._check_ids()

    async def _check(self) -> list[Row]:
        """All that brokers would give out at this moment: keys, values and positions, in the order of segments.

        Others go on while it is read: so it is held against what they had been told before.
        """
        told = {each.value: replace(each, told=list(each.told)) for each in self.published}
        committing = {first: replace(each) for first, each in self.committing.items()}
        given_up = set(self.given_up)
        state = await self._state()
        rows = [row for segment in state.segments for row in await self._rows(SegmentRef(TOPIC, segment.id))]
        self._check_messages(rows, told)
        self._check_loads(state, rows, committing, given_up)
        self._check_order(rows, told, committing)
        return rows

    async def _rows(self, ref: SegmentRef) -> list[Row]:
        index = await recover_index(self.memory, ref)
        rows: list[Row] = []
        for facts in index.files:
            table = decode((await self.memory.get(ref.key(facts.name))).data)
            table = table.slice(facts.start - facts.base, facts.count)
            for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
                rows.append((key, value, Position(ref.segment, len(rows), 1)))
        return rows

    def _check_messages(self, rows: list[Row], told: Mapping[bytes, Published]) -> None:
        counts = Counter(value for _, value, _ in rows)
        assert not [value for value, count in counts.items() if count > 1], "doubled"
        places = {value: position for _, value, position in rows}
        for published in told.values():
            for position in published.told:
                assert places.get(published.value) == position, f"{published.value!r} is not at {position}"
        for published in self.published:
            if published.tries == published.moved:
                assert published.value not in places, f"{published.value!r} was refused and is there"

    def _check_loads(
        self, state: TopicState, rows: list[Row], committing: Mapping[int, Committing], given_up: set[int]
    ) -> None:
        by_load: dict[str, list[Position]] = defaultdict(list)
        for _, value, position in rows:
            if not value.startswith(b"published"):
                by_load[value.split()[0].decode()].append(position)
        adopted = {load.id: load for load in state.loads if load.version is not None}
        assert by_load.keys() == adopted.keys(), "what is there of loads is not what was adopted"
        for load_id, load in adopted.items():
            ends = dict(zip(load.segments, load.ends, strict=True))
            assert by_load[load_id] == [Position(i, n, 1) for i in ends for n in range(ends[i])], "it is not whole"
            assert sum(load.ends) in (ROWS * len(KEYS), (ROWS + 1) * len(KEYS))
        for first, told in committing.items():
            assert told.answer in (None, *adopted.values()), f"the commit of {first} was answered, and is undone"
        assert given_up.isdisjoint(load.first_segment for load in adopted.values()), "it had been given up"

    def _check_order(
        self, rows: list[Row], told: Mapping[bytes, Published], committing: Mapping[int, Committing]
    ) -> None:
        """Of one key: who was told before another was sent comes first; a load's messages in their order."""
        by_key: dict[bytes, list[tuple[float, float, int]]] = defaultdict(list)
        for key, value, position in rows:
            if (published := told.get(value)) is not None:
                by_key[key].append((published.sent, published.told_at, 0))
            elif not value.startswith(b"published"):
                first = max(first for first in committing if first <= position.segment)
                by_key[key].append((committing[first].asked, committing[first].answered, int(value.split()[-1])))
        for values in by_key.values():
            for ordinal, (begun, _, number) in enumerate(values):
                later = values[ordinal + 1 :]
                assert all(told_at >= begun for _, told_at, _ in later), "it comes before what was told before it"
                assert all(n > number for b, _, n in later if b == begun and n), "a load's messages are not in order"

    async def _check_reader(self, broker: SimulatedBroker, rows: list[Row]) -> None:
        """A reader of a broker gets the same, each key's in the same order."""
        reader = TopicReader(await broker.topics.topic(TOPIC), broker.segment_reader)
        runs, _ = await reader.read(reader.earliest(), max_rows=1 << 20, max_bytes=1 << 30)
        read: dict[bytes, list[bytes]] = defaultdict(list)
        for run in runs:
            for key, value in zip(run.table["key"].to_pylist(), run.table["value"].to_pylist(), strict=True):
                read[key].append(value)
        expected: dict[bytes, list[bytes]] = defaultdict(list)
        for key, value, _ in rows:
            expected[key].append(value)
        assert read == expected

    def _check_ids(self) -> None:
        """No id was given out twice, in any version of topic.json."""
        reserved: dict[int, tuple[str, int]] = {}
        for state in self.memory.versions:
            for load in state.loads:
                for segment in load.segments:
                    assert reserved.setdefault(segment, (load.id, load.first_segment)) == (load.id, load.first_segment)
            for each in state.segments:
                assert reserved.get(each.id, (each.load, 0))[0] == each.load


async def simulated(seed: int) -> Simulation:
    return await Simulation(seed).run()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_any_schedule(seed: int) -> None:
    await simulated(seed)
